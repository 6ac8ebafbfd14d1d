"""What a confined command can reach on this machine, tried in every way that was thought of."""

from collections.abc import Iterator
import os
from pathlib import Path
import shutil
import socket
import sys
import threading

import anyio
import pytest
from workbench import Workbench, is_gone, pid_in, until

from dsh_acp.config import Settings
from dsh_acp.errors import ToolError
from dsh_acp.tools import confine, disk, process
from dsh_acp.tools.confine import Confinement
from dsh_acp.tools.sandbox import Sandbox
from dsh_acp.tools.tool import CommandEnd
from dsh_acp.tools.world import LocalWorld

PYTHON = sys.executable


class Yard:
    """A workspace inside a sandbox, and a folder outside that must stay as it is."""

    def __init__(self, folder: Path, means: str) -> None:
        self.inside = folder / "inside"
        self.temp = folder / "temp"
        self.outside = folder / "outside"
        for path in (self.inside, self.temp, self.outside):
            path.mkdir()
        self.victim = self.outside / "victim"
        self.victim.write_text("precious\n", encoding="utf-8")
        (self.inside / "door").symlink_to(self.outside)
        self.settings = Settings(
            home=folder / "home",
            config_path=folder / "c",
            config_dir=folder / "config",
            sandbox=means,  # type: ignore[arg-type]
        )

    def confinement(self) -> Confinement:
        return Confinement(self.settings, (str(self.temp),))

    def sandbox(self) -> Sandbox:
        found = self.confinement().sandbox((str(self.inside),))
        assert found is not None
        return found

    async def run(self, command: str, sandbox: Sandbox | None = None) -> CommandEnd:
        with anyio.fail_after(30):
            return await LocalWorld().run(
                command,
                cwd=str(self.inside),
                timeout_ms=10_000,
                env={"OUT": str(self.outside), "PY": PYTHON, "AGENT": str(os.getpid())},
                sandbox=sandbox or self.sandbox(),
            )

    def is_untouched(self) -> bool:
        if not self.outside.is_dir():
            return False
        names = [path.name for path in self.outside.iterdir()]
        return names == ["victim"] and self.victim.read_text(encoding="utf-8") == "precious\n"


def works(means: str) -> bool:
    found = confine.find(means)  # type: ignore[arg-type]
    return found is not None


@pytest.fixture(params=["landlock", "bubblewrap"])
def yard(request: pytest.FixtureRequest, tmp_path: Path) -> Yard:
    if not works(request.param):
        pytest.skip(f"{request.param} does not work on this machine")
    return Yard(tmp_path, request.param)


ESCAPES = {
    "by its path": "echo bad >$OUT/victim",
    "a new file": "echo bad >$OUT/new",
    "by ..": "echo bad >../outside/victim",
    "appended": "echo bad >>$OUT/victim",
    "through a symlink that was there": "echo bad >door/victim",
    "through a symlink that it makes": "ln -s $OUT/victim here; echo bad >here",
    "through a symlink swapped under the write": (
        "for n in $(seq 50); do ln -sfn $OUT swap; echo bad >swap/new; "
        "ln -sfn . swap; echo ok >swap/new; done"
    ),
    "through a hard link": "ln $OUT/victim here; echo bad >here",
    "a hard link out": "echo bad >mine; ln mine $OUT/new",
    "moved away": "mv $OUT/victim here",
    "moved over": "echo bad >mine; mv -f mine $OUT/victim",
    "deleted": "rm -rf $OUT/victim $OUT",
    "a folder": "mkdir $OUT/new",
    "a symlink outside": "ln -s / $OUT/new",
    "a pipe outside": "mkfifo $OUT/new",
    "exchanged with one inside": (
        "$PY -c 'import ctypes,os; ctypes.CDLL(None).renameat2("
        '-100, b"mine", -100, os.environ["OUT"].encode() + b"/victim", 2)\''
    ),
    "shortened by name": '$PY -c \'import os; os.truncate(os.environ["OUT"] + "/victim", 0)\'',
    "shortened when opened": ": >$OUT/victim",
    "opened for reading, then by /proc/self/fd": "exec 3<$OUT/victim; echo bad >/proc/self/fd/3",
    "a folder opened, then by /proc/self/fd": "exec 3<$OUT; echo bad >/proc/self/fd/3/new",
    "by the root of another process": "echo bad >/proc/$AGENT/root$OUT/victim",
    "by the folder of another process": "cd /proc/$AGENT/cwd && echo bad >$OUT/victim",
    "by the memory of another process": (
        '$PY -c \'import os; open("/proc/%s/mem" % os.environ["AGENT"], "r+b")\' '
        "&& echo bad >$OUT/victim; [ -w /proc/$AGENT/mem ] && true"
    ),
    "in a session of its own": "setsid -w bash -c 'echo bad >$OUT/victim'",
    "as a daemon": "setsid bash -c 'sleep 0.05; echo bad >$OUT/victim' & wait; sleep 0.1",
    "from a child of a child": (
        "$PY -c 'import os; os.fork() or os.fork() or os.setsid() or "
        'os.execvp("sh", ["sh", "-c", "echo bad >$OUT/victim"])\'; sleep 0.1'
    ),
    "with a mount": "mount --bind . $OUT; mount -t tmpfs none $OUT; echo bad >$OUT/victim",
    "in namespaces of its own": (
        "unshare -Urm bash -c 'mount --bind . $OUT; mount -o remount,rw /; echo >$OUT/victim'"
    ),
    "with its root changed": "unshare -Ur chroot / bash -c 'echo bad >$OUT/victim'",
    "with a root moved": "unshare -Urm bash -c 'pivot_root . . ; echo bad >$OUT/new'",
    "copied with everything": "cp -a --remove-destination /etc/hostname $OUT/victim",
    "unpacked": "mkdir a; echo bad >a/victim; tar -cf - -C a victim | tar -xf - -C $OUT",
    "by a link in an archive": (
        "ln -s $OUT into; tar -cf t.tar into; mkdir b; tar -xf t.tar -C b; echo bad >b/into/new"
    ),
    "by git": "git init -q . ; git config core.worktree $OUT; touch x; git checkout-index -af; "
    "echo bad >x; git add x; git --work-tree=$OUT checkout -f -- x",
    "by a name with a newline": "mkdir $OUT/$'a\\nb'",
    "with a changed HOME": "HOME=$OUT bash -c 'echo bad >~/new'",
    "with a changed TMPDIR": "TMPDIR=$OUT mktemp",
    "by sed in place": "sed -i s/precious/bad/ $OUT/victim",
    "by dd": "dd if=/dev/zero of=$OUT/victim bs=1 count=1 conv=notrunc",
    "by a program that it makes": (
        "printf '#!/bin/sh\\necho bad >$OUT/victim\\n' >p; chmod 4755 p; ./p"
    ),
}


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES.keys())
async def test_a_confined_command_changes_nothing_outside(yard: Yard, escape: str) -> None:
    (yard.inside / "mine").write_text("mine\n", encoding="utf-8")
    await yard.run(escape)
    assert yard.is_untouched()


async def test_the_same_commands_do_harm_without_a_sandbox(tmp_path: Path) -> None:
    """Otherwise the table above would prove nothing."""
    harmless: list[str] = []
    for number, (name, escape) in enumerate(ESCAPES.items()):
        if " mount " in f" {escape}":
            continue  # what root mounts would stay
        place = tmp_path / str(number)
        place.mkdir()
        yard = Yard(place, "off")
        (yard.inside / "mine").write_text("mine\n", encoding="utf-8")
        with anyio.fail_after(30):
            env = {"OUT": str(yard.outside), "PY": PYTHON, "AGENT": str(os.getpid())}
            await LocalWorld().run(escape, cwd=str(yard.inside), timeout_ms=10_000, env=env)
        if yard.is_untouched():
            harmless.append(name)
    # Some need rights or programs that a machine may lack.
    assert len(harmless) < len(ESCAPES) / 4, harmless


WORK = {
    "files": "echo a >f && mv f g && cp g h && rm g && cat h",
    "folders": "mkdir -p a/b && echo x >a/b/c && mv a/b/c . && rmdir -p a/b",
    "links": "echo a >f; ln f g; ln -s f h; cat g h",
    "modes": "echo a >f && chmod 755 f && touch -d 2000-01-01 f",
    "devices": "echo a >/dev/null; head -c 4 /dev/urandom >f; echo b >/dev/stderr",
    "pipes": "mkfifo p; (echo a >p &); cat p; echo a | tee f | cat",
    "temporary files": "TMPDIR=../temp mktemp && echo a >../temp/x",
    "version control": (
        "git init -q . && git config user.email a@b && git config user.name c && echo a >f && "
        "git add f && git commit -qm first && git mv f g && git commit -qm second && git gc -q"
    ),
    "python": "$PY -c 'import socket, subprocess; socket.socketpair(); "
    'print(subprocess.check_output(["echo", "a"]))\'',
    "many processes": "seq 20 | xargs -P 4 -n 1 sh -c 'echo $0 >n$0'; ls n* | wc -l",
    "reading elsewhere": "cat /etc/passwd $OUT/victim >copy",
    "signals to its own": "sleep 100 & kill $! && wait; true",
}


@pytest.mark.parametrize("work", WORK.values(), ids=WORK.keys())
async def test_ordinary_work_goes_on_in_a_sandbox(yard: Yard, work: str) -> None:
    ended = await yard.run(work)
    assert ended.exit_code == 0, ended.stderr.decode()
    assert ended.denied == ()


SOCKETS = {
    "tcp": "socket.create_connection(('127.0.0.1', PORT), 2).sendall(b'x')",
    "udp": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT))",
    "tcp 6": "socket.create_connection(('::1', PORT), 2).sendall(b'x')",
    "a local socket": "s=socket.socket(socket.AF_UNIX); s.connect(PATH); s.sendall(b'x')",
    "an abstract socket": "socket.socket(socket.AF_UNIX).connect('\\0' + NAME)",
    "raw": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW).send(b'x')",
    "io_uring": (
        "import ctypes; r = ctypes.CDLL(None).syscall(425, 4, ctypes.create_string_buffer(120)); "
        "assert r >= 0"
    ),
}


@pytest.fixture
def listeners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, object]]:
    name = f"dsh-{os.getpid()}"
    tcp, local = socket.socket(), socket.socket(socket.AF_UNIX)
    abstract = socket.socket(socket.AF_UNIX)
    try:
        tcp.bind(("127.0.0.1", 0))
        monkeypatch.chdir(tmp_path)  # the whole path may be too long for a socket
        local.bind("s")
        abstract.bind("\0" + name)
        for each in (tcp, local, abstract):
            each.listen()
            each.setblocking(False)
        yield {
            "PORT": tcp.getsockname()[1],
            "PATH": str(tmp_path / "s"),
            "NAME": name,
            "all": (tcp, local, abstract),
        }
    finally:
        for each in (tcp, local, abstract):
            each.close()


@pytest.mark.parametrize("way", SOCKETS.values(), ids=SOCKETS.keys())
async def test_a_confined_command_reaches_nobody(
    yard: Yard, listeners: dict[str, object], way: str
) -> None:
    names = {key: repr(value) for key, value in listeners.items() if key != "all"}
    for key, value in names.items():
        way = way.replace(key, value)
    (yard.inside / "s.py").write_text(f"import os, socket\n{way}\n", encoding="utf-8")
    ended = await yard.run("cp ../s . 2>/dev/null; $PY s.py")
    if yard.settings.sandbox == "landlock" or "127.0.0.1" not in way or "SOCK_DGRAM" not in way:
        assert ended.exit_code != 0
    for listener in listeners["all"]:  # type: ignore[attr-defined]
        with pytest.raises(BlockingIOError):
            listener.accept()


async def test_loopback_inside_bubblewrap_is_its_own(tmp_path: Path) -> None:
    if not works("bubblewrap"):
        pytest.skip("bubblewrap does not work on this machine")
    yard = Yard(tmp_path, "bubblewrap")
    (yard.inside / "s.py").write_text(
        "import socket\ns = socket.create_server(('127.0.0.1', 0))\n"
        "socket.create_connection(s.getsockname()).sendall(b'x')\nprint(s.accept()[0].recv(1))\n",
        encoding="utf-8",
    )
    ended = await yard.run("$PY s.py")
    assert ended.stdout == b"b'x'\n"


async def test_a_confined_command_cannot_stop_the_agent(yard: Yard) -> None:
    bystander = process.Child(("sleep", "60"), str(yard.inside), os.environ)
    try:
        ended = await yard.run(f"kill -9 {bystander.pid}; kill -9 $AGENT; true")
        assert ended.exit_code == 0
        assert not is_gone(bystander.pid)
    finally:
        await bystander.stop(0.1)
        bystander.close()


async def test_what_a_confined_command_left_running_is_stopped(yard: Yard) -> None:
    async with anyio.create_task_group() as group:
        pid = yard.inside / "pid"
        group.start_soon(yard.run, "setsid sleep 600 & echo $! >pid; sleep 600")
        await until(lambda: pid_in(pid))
        group.cancel_scope.cancel()
    if yard.settings.sandbox == "landlock":  # others number processes their own way
        await until(lambda: is_gone(pid_in(pid)))


async def test_the_agent_itself_is_never_confined(yard: Yard) -> None:
    await yard.run("true")
    (yard.outside / "mine").write_text("still free", encoding="utf-8")
    with socket.socket(socket.AF_INET):
        pass


async def test_a_network_that_was_granted_is_there(
    yard: Yard, listeners: dict[str, object]
) -> None:
    from msgspec.structs import replace

    yard.settings = replace(yard.settings, sandbox_network=True)
    ended = await yard.run(
        f"$PY -c 'import socket; socket.create_connection((\"127.0.0.1\", {listeners['PORT']}))'; "
        "echo bad >$OUT/victim"
    )
    assert b"Traceback" not in ended.stderr
    assert yard.is_untouched()


async def test_folders_of_the_settings_are_writable_too(yard: Yard, tmp_path: Path) -> None:
    from msgspec.structs import replace

    more = tmp_path / "more"
    more.mkdir()
    yard.settings = replace(yard.settings, sandbox_writable=(str(more),))
    await yard.run(f"echo a >{more}/f; echo bad >$OUT/victim")
    assert (more / "f").read_text(encoding="utf-8") == "a\n"
    assert yard.is_untouched()


def test_a_workspace_that_holds_our_own_settings_is_not_confined(yard: Yard) -> None:
    above = str(yard.inside.parent)
    assert yard.confinement().sandbox((above,)) is None
    assert yard.confinement().sandbox((str(yard.inside),)) is not None


def test_nothing_confines_when_that_is_wanted(tmp_path: Path) -> None:
    yard = Yard(tmp_path, "off")
    assert yard.confinement().sandbox((str(yard.inside),)) is None


# ---------------------------------------------------------------- what the model is told


@pytest.fixture
def confined(yard: Yard, bench: Workbench) -> Workbench:
    bench.folder = yard.inside
    bench.cwd = str(yard.inside)
    bench.sandbox = yard.sandbox()
    return bench


HINT = (
    "[sandbox: escalation available — retry this exact command once with sandbox_permissions "
    "(the narrowest wider mode that suffices) + justification; the approval prompt asks the user]"
)


async def test_a_denial_is_told_with_the_way_out(confined: Workbench, yard: Yard) -> None:
    text = await confined.text("bash", command=f"echo a >{yard.outside}/new", description="d")
    assert text.endswith(
        f"\n[sandbox: file access denied under workspace-write mode]\n{HINT}\n[exit code: 1]"
    )


async def test_a_refused_socket_is_told(confined: Workbench) -> None:
    if not works("landlock") or "Landlock" != confined.sandbox.means.name:  # type: ignore[union-attr]
        pytest.skip("a network of its own refuses otherwise")
    command = f"{PYTHON} -c 'import socket; socket.socket()'"
    text = await confined.text("bash", command=command, description="d")
    assert f"[sandbox: network access denied under workspace-write mode]\n{HINT}" in text


async def test_what_everybody_is_refused_is_no_denial(confined: Workbench, yard: Yard) -> None:
    command = "echo 'bash: /proc/version: Permission denied' >&2; cat missing; exit 1"
    text = await confined.text("bash", command=command, description="d")
    if os.geteuid() != 0:
        assert "[sandbox:" not in text
    text = await confined.text("bash", command="echo 'f: Permission denied'", description="d")
    assert "[sandbox:" not in text


async def test_a_background_job_is_confined_and_says_so(confined: Workbench, yard: Yard) -> None:
    await confined.call(
        "bash", command=f"echo a >{yard.outside}/new", description="d", run_in_background=True
    )
    text = await confined.text("job_output", job_id="job-1", wait=True)
    assert f"[sandbox: file access denied under workspace-write mode]\n{HINT}" in text
    assert yard.is_untouched()


async def test_a_command_that_cannot_be_started_is_told(confined: Workbench) -> None:
    refusal = await confined.refusal("bash", command="true", description="d", workdir="missing")
    assert refusal.code == "EXEC_FAILED"


def test_escalation_is_offered_only_where_something_confines(tmp_path: Path) -> None:
    from msgspec.structs import replace

    from dsh_acp.tools.catalog import builtin

    settings = Yard(tmp_path, "off").settings
    assert b"sandbox_permissions" not in bytes(builtin(settings)["bash"].schema.parameters)
    if works("auto"):
        confined = builtin(replace(settings, sandbox="auto"))["bash"].schema
        assert b"sandbox_permissions" in bytes(confined.parameters)


def test_a_seatbelt_profile_names_folders_as_parameters() -> None:
    from dsh_acp.tools.confine_programs import Seatbelt

    argv = Seatbelt("sandbox-exec").argv(("ls",), ('/a"b', "/c"), network=False)
    assert argv[:3] == ["sandbox-exec", '-DW0=/a"b', "-DW1=/c"]
    assert argv[-1] == "ls"
    assert '/a"b' not in argv[4]
    assert "(deny network*)" in argv[4]


def test_programs_of_the_table_are_here() -> None:
    missing = [name for name in ("git", "tar", "setsid", "unshare") if not shutil.which(name)]
    if missing:
        pytest.skip(f"without {', '.join(missing)} some escapes prove nothing")


# ---------------------------------------------------------------- files, which we write ourselves


def test_a_write_goes_where_it_was_allowed_however_symlinks_are_swapped(tmp_path: Path) -> None:
    allowed, outside, door = tmp_path / "allowed", tmp_path / "outside", tmp_path / "door"
    allowed.mkdir()
    outside.mkdir()
    door.symlink_to(allowed)
    over = threading.Event()

    def swap() -> None:
        other = tmp_path / "other"
        while not over.is_set():
            for target in (outside, allowed):
                other.symlink_to(target)
                other.replace(door)

    swapper = threading.Thread(target=swap)
    swapper.start()
    written = refused = 0
    try:
        for number in range(300):
            name = f"f{number}"
            try:
                disk.write_file(str(door / name), b"x", None, str(allowed / name))
                written += 1
            except ToolError as exc:
                assert exc.code == "FS_STALE_VERSION"
                refused += 1
    finally:
        over.set()
        swapper.join()
    assert os.listdir(outside) == []
    assert written == len(os.listdir(allowed))
    assert written and refused


def test_a_file_that_became_a_symlink_is_replaced_and_not_followed(tmp_path: Path) -> None:
    victim, file = tmp_path / "victim", tmp_path / "file"
    victim.write_text("same", encoding="utf-8")
    file.write_text("same", encoding="utf-8")
    version = disk.digest_file(str(file))
    file.unlink()
    file.symlink_to(victim)
    with pytest.raises(ToolError, match="when this was allowed, and now leads to"):
        disk.write_file(str(file), b"bad", version, str(file))
    assert victim.read_text(encoding="utf-8") == "same"
