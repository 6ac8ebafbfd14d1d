"""A confined command leaves no orders to git behind."""

from collections.abc import Callable
import os
from pathlib import Path
import subprocess

import pytest

from dsh_acp.tools import confine_git

PROGRAM = "#!/bin/sh\ntouch canary\n"


def git(folder: Path, *words: str) -> str:
    ran = subprocess.run(("git", *words), cwd=folder, capture_output=True, check=True)
    return ran.stdout.decode()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    git(folder, "init", "-q", ".")
    git(folder, "config", "core.pager", "mine")
    (folder / ".git/hooks").mkdir(exist_ok=True)
    (folder / ".git/hooks/pre-push").write_text("#!/bin/sh\nmine\n", encoding="utf-8")
    return folder


def hook(name: str, text: str = PROGRAM) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        path = folder / ".git/hooks" / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    return act


def setting(key: str, value: str = "touch canary") -> Callable[[Path], object]:
    return lambda folder: git(folder, "config", key, value)


def written(text: str) -> Callable[[Path], object]:
    def act(folder: Path) -> None:
        with (folder / ".git/config").open("a", encoding="utf-8") as file:
            file.write(text)

    return act


def elsewhere(folder: Path) -> None:
    (folder / ".git").rename(folder / "moved")
    (folder / ".git").write_text("gitdir: moved\n", encoding="utf-8")


def linked_hooks(folder: Path) -> None:
    (folder / ".git/hooks").rename(folder / "hooks")
    (folder / ".git/hooks").symlink_to(folder.parent / "precious")


def submodule(folder: Path) -> None:
    inner = folder / ".git/modules/sub"
    for name in ("objects", "hooks"):
        (inner / name).mkdir(parents=True)
    (inner / "hooks/post-checkout").write_text(PROGRAM, encoding="utf-8")


ORDERS: dict[str, Callable[[Path], object]] = {
    "a new hook": hook("pre-commit"),
    "a hook that was there": hook("pre-push"),
    "a hook that was deleted": lambda folder: (folder / ".git/hooks/pre-push").unlink(),
    "a hook that is a link": lambda folder: (folder / ".git/hooks/x").symlink_to("/bin/sh"),
    "hooks elsewhere": setting("core.hooksPath", "hooks"),
    "a monitor": setting("core.fsmonitor"),
    "another pager": setting("core.pager"),
    "an alias": setting("alias.status", "!touch canary"),
    "a filter": setting("filter.x.clean"),
    "a diff": setting("diff.x.textconv"),
    "a merge": setting("merge.x.driver", "touch canary %A"),
    "credentials": setting("credential.helper", "!touch canary"),
    "another file": setting("include.path", "../evil"),
    "on one line": written('[core]fsmonitor="touch canary"\n'),
    "in capitals": written("[CORE]\n\tFsMonitor = touch canary\n"),
    "what git does not understand": written("[core\nfsmonitor = x\n"),
    "settings of a worktree": lambda folder: (folder / ".git/config.worktree").write_text(
        "[core]\n\tfsmonitor = touch canary\n", encoding="utf-8"
    ),
    "a repository elsewhere": elsewhere,
    "hooks behind a link": linked_hooks,
    "a submodule": submodule,
}


def state(folder: Path) -> dict[str, object]:
    """Everything that git takes orders from."""
    found: dict[str, object] = {}
    for name in ("config", "config.worktree", "hooks", "modules/sub/hooks"):
        path = folder / ".git" / name
        for each in (path, *(sorted(path.iterdir()) if path.is_dir() else ())):
            if each.is_file() and not each.name.endswith(".sample"):
                found[str(each)] = (each.is_symlink(), each.stat().st_mode, each.read_bytes())
    return found


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_an_order_is_undone_and_told(place: Path, order: Callable[[Path], object]) -> None:
    precious = place.parent / "precious"
    precious.mkdir()
    (precious / "pre-push").write_text("precious", encoding="utf-8")
    (precious / "other").write_text("precious", encoding="utf-8")
    before = state(place)
    watch = confine_git.Watch((str(place),))
    order(place)
    undone = watch.restore()
    assert undone
    assert set(state(place).items()) <= set(before.items())
    assert {path.name: path.read_bytes() for path in precious.iterdir()} == {
        "pre-push": b"precious",
        "other": b"precious",
    }
    (line,) = confine_git.told(undone)
    assert line.startswith("[sandbox: changes to .git")
    assert confine_git.Watch((str(place),)).restore() == ()


WORK: dict[str, Callable[[Path], object]] = {
    "a remote": setting("remote.origin.url", "https://example.org/x"),
    "who one is": setting("user.email", "a@b"),
    "a branch": setting("branch.main.merge", "refs/heads/main"),
    "a sample": hook("pre-commit.sample"),
    "a commit": lambda folder: git(
        folder, "-c", "user.name=a", "-c", "user.email=b",
        "commit", "-q", "--allow-empty", "-m", "x", "--no-verify",
    ),
    "the end of the repository": lambda folder: subprocess.run(
        ("rm", "-rf", ".git"), cwd=folder, check=True
    ),
}  # fmt: skip


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_ordinary_work_stays(place: Path, work: Callable[[Path], object]) -> None:
    watch = confine_git.Watch((str(place), str(place.parent / "nothing")))
    work(place)
    after = state(place)
    assert watch.restore() == ()
    assert state(place) == after


def test_a_repository_that_a_command_makes_has_no_orders_in_it(tmp_path: Path) -> None:
    watch = confine_git.Watch((str(tmp_path),))
    git(tmp_path, "init", "-q", ".")
    os.makedirs(tmp_path / ".git/hooks", exist_ok=True)
    hook("post-checkout")(tmp_path)
    assert watch.restore() == (str(tmp_path / ".git/hooks/post-checkout"),)
