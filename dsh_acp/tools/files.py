"""Reading and changing files: `read`, `write`, `edit`.

Nothing is overwritten that the model has not seen in its current state, and whatever an edit does
not touch keeps its bytes: encoding, byte order mark, line endings, final newline.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from anyio import to_thread

from dsh_acp.errors import ToolError
from dsh_acp.tools import caution, disk, edits, encoding, reading
from dsh_acp.tools.builtin import Builtin, absolute, resolved, text_outcome
from dsh_acp.tools.diffs import Hunk, hunks
from dsh_acp.tools.lines import Normalised, to_lf
from dsh_acp.tools.observations import exclusive, observations
from dsh_acp.tools.tool import FileDiff, FileRead, Intent, Outcome, ToolContext, Version

if TYPE_CHECKING:
    from dsh_acp.tools import arguments

EDITED_BYTES: Final = 64 * 1024 * 1024
# The arguments are in the log already; a diff that repeats much of them is not recorded.
RECORDED_CHARS: Final = 256 * 1024


class Read(Builtin):
    """Shows a page of a file and remembers the file's state."""

    name = "read"
    is_concurrent = True

    def __init__(self, secret: Sequence[str] = ()) -> None:
        self._secret = secret

    def intent(self, args: "arguments.Read", cwd: str) -> Intent:
        """Reads one path; `secret` places are asked about wherever they are."""
        path = resolved(args.file_path, cwd)
        reason = caution.of_place(path, self._secret)
        return Intent(effect="read", paths=(path,), cwd=cwd, scope=path, reason=reason)

    async def run(self, args: "arguments.Read", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        path = absolute(args.file_path, ctx.cwd)
        offset, limit = args.offset or 1, args.limit or reading.MAX_LINES
        seen = observations(ctx)
        try:
            page, version = await _page(path, offset, limit, ctx)
        except ToolError as exc:
            if exc.code == "FS_NOT_FOUND":
                seen.record(path, None)
            raise
        seen.record(path, version)
        return text_outcome(reading.render(path, page), reading.meta(path, page))


async def _page(
    path: str, offset: int, limit: int, ctx: ToolContext
) -> tuple[reading.Page, Version]:
    try:
        found = await ctx.world.read(path, reading.STREAMED_BYTES)
    except ToolError as exc:
        if exc.code != "FS_TOO_LARGE":
            raise
        return await to_thread.run_sync(reading.stream, path, offset, limit, abandon_on_cancel=True)
    text, _ = decoded("read", path, found)
    return reading.page_of(Normalised(text).text, offset, limit), found.version


class Write(Builtin):
    """Creates a file or replaces all of its content."""

    name = "write"

    def __init__(self, protected: Sequence[str] = ()) -> None:
        self._protected = protected

    def intent(self, args: "arguments.Write", cwd: str) -> Intent:
        """Writes one path."""
        return write_intent(args, cwd, self._protected)

    async def run(self, args: "arguments.Write", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        path = absolute(args.file_path, ctx.cwd)
        async with exclusive(path):
            current = await existing("write", path, ctx)
            seen = observations(ctx).seen(path)
            if current is None:
                if seen is not None:
                    reason = "file no longer exists — re-read the file, then retry"
                    raise disk.fs_error("write", path, reason, "FS_STALE_VERSION")
                data = _fresh(path, args.content)
            else:
                if seen is None:
                    raise unread_overwrite(path)
                if seen.digest != current.version.digest:
                    raise disk.stale(path)
                data = rewritten(path, current, args.content)
            stored = await store(path, data, current, ctx)
        before = None if current is None else shown(current)
        after = shown(stored)
        diffs = (
            _diffs(args.file_path, before, after)
            if before is not None or after != to_lf(args.content).removeprefix("\ufeff")
            else []
        )
        done = "Created file" if current is None else "Updated file"
        text = reading.envelope(path, "file", done) + await _remarks(path, ctx)
        return text_outcome(text, {"diffs": diffs})

    async def preview(self, args: "arguments.Write", ctx: ToolContext) -> tuple[FileDiff, ...]:
        """The change against what is there now; nothing for a call that would fail."""
        path = absolute(args.file_path, ctx.cwd)
        try:
            current = await existing("write", path, ctx)
            if current is None:
                return (FileDiff(path, None, to_lf(args.content)),)
            data = rewritten(path, current, args.content)
        except ToolError:
            return ()
        return file_diffs(path, shown(current), shown(FileRead(data, current.version)))


class Edit(Builtin):
    """Replaces text in a file."""

    name = "edit"

    def __init__(self, protected: Sequence[str] = ()) -> None:
        self._protected = protected

    def intent(self, args: "arguments.Edit", cwd: str) -> Intent:
        """Writes one path."""
        return write_intent(args, cwd, self._protected)

    async def run(self, args: "arguments.Edit", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        path = absolute(args.file_path, ctx.cwd)
        async with exclusive(path):
            seen = observations(ctx).seen(path)
            current = await existing("edit", path, ctx)
            if current is None:
                raise disk.fs_error("edit", path, "not found", "FS_NOT_FOUND")
            if seen is None:
                text = f'edit requires reading "{path}" first — read the file, then retry'
                raise ToolError(text, code="FS_NOT_OBSERVED", name="FsError")
            if seen.digest != current.version.digest:
                raise disk.stale(path, "edit")
            data, note = apply(path, current, args)
            stored = await store(path, data, current, ctx)
        diffs = _diffs(args.file_path, shown(current), shown(stored))
        if args.replace_all:
            text = f"The file {path} has been updated. All occurrences were successfully replaced."
        else:
            text = f"The file {path} has been updated successfully."
        text = f"{text} ({note}.)" if note else text
        return text_outcome(text + await _remarks(path, ctx), {"diffs": diffs})

    async def preview(self, args: "arguments.Edit", ctx: ToolContext) -> tuple[FileDiff, ...]:
        """The change against what is there now; nothing for a call that would fail."""
        path = absolute(args.file_path, ctx.cwd)
        try:
            current = await existing("edit", path, ctx)
            if current is None:
                return ()
            data, _ = apply(path, current, args)
        except ToolError:
            return ()
        return file_diffs(path, shown(current), shown(FileRead(data, current.version)))


def write_intent(args: "arguments.Escalating", cwd: str, protected: Sequence[str] = ()) -> Intent:
    """What a call with a `file_path` changes; `scope` is the file."""
    path = resolved(str(getattr(args, "file_path", "")), cwd)
    reason = escalation(args) or caution.of_change(path, cwd, protected)
    return Intent(
        effect="write",
        paths=(path,),
        cwd=cwd,
        scope=path,
        reason=reason,
        escalate=args.sandbox_permissions,
    )


def escalation(args: "arguments.Escalating") -> str | None:
    """Why the call asks for more than it has."""
    if args.sandbox_permissions is None:
        return None
    return f"escalate sandbox to {args.sandbox_permissions}: {args.justification}"


# ---------------------------------------------------------------- content


async def existing(verb: str, path: str, ctx: ToolContext) -> FileRead | None:
    """The whole file, or `None` when there is none.

    Raises:
        ToolError: it cannot be read, or has more than 64 MiB.
    """
    try:
        return await ctx.world.read(path, EDITED_BYTES)
    except ToolError as exc:
        if exc.code == "FS_NOT_FOUND":
            return None
        # The world speaks of reading; the model asked for something else.
        text = str(exc).replace("cannot read ", f"cannot {verb} ", 1)
        raise ToolError(text, code=exc.code, name=exc.name) from exc


def decoded(verb: str, path: str, found: FileRead) -> tuple[str, encoding.Encoding]:
    """The text of a file and its encoding.

    Raises:
        ToolError: `FS_NOT_TEXT`.
    """
    try:
        return encoding.decode(found.data)
    except encoding.NotText as exc:
        raise disk.fs_error(verb, path, str(exc), "FS_NOT_TEXT") from exc


def shown(found: FileRead) -> str:
    """A file's text for a diff: `\\n` endings; empty for what is not text."""
    try:
        return Normalised(encoding.decode(found.data)[0]).text
    except encoding.NotText:
        return ""


def encoded(verb: str, path: str, text: str, known: encoding.Encoding) -> bytes:
    """`text` in the file's encoding.

    Raises:
        ToolError: the encoding has no such character.
    """
    try:
        return known.encode(text)
    except UnicodeEncodeError as exc:
        char = text[exc.start]
        reason = f"its encoding {known.label} has no character {char!r} (U+{ord(char):04X})"
        raise disk.fs_error(verb, path, reason, "FS_NOT_TEXT") from exc


def _fresh(path: str, content: str) -> bytes:
    try:
        return content.encode()
    except UnicodeEncodeError as exc:
        reason = "the content has half a surrogate pair, which no file can hold"
        raise disk.fs_error("write", path, reason, "FS_NOT_TEXT") from exc


def rewritten(path: str, current: FileRead, content: str) -> bytes:
    """`content` the way the file was stored: its encoding, byte order mark and line endings.

    Content that has carriage returns itself is taken as it is.

    Raises:
        ToolError: the file is not text, or its encoding cannot hold `content`.
    """
    text, known = decoded("write", path, current)
    content = content.removeprefix("\ufeff")
    if "\r" not in content:
        before = Normalised(text)
        content = before.restore(0, len(before.text), content)
    return encoded("write", path, content, known)


def apply(path: str, current: FileRead, args: "arguments.Edit") -> tuple[bytes, str]:
    """The file's bytes after the edit, and how an inexact match was found.

    Raises:
        ToolError: `FS_NOT_TEXT`, `FS_EDIT_NOT_FOUND`, `FS_AMBIGUOUS_EDIT`.
    """
    text, known = decoded("edit", path, current)
    before = Normalised(text)
    old, new = to_lf(args.old_string), to_lf(args.new_string)
    plans = edits.plan(before.text, old, new)
    if not plans and old.startswith("\ufeff"):
        plans = edits.plan(before.text, old[1:], new.removeprefix("\ufeff"))
    if not plans:
        sentence = f'old_string was not found in "{path}"'
        raise ToolError(sentence, code="FS_EDIT_NOT_FOUND", name="FsError")
    if len(plans) > 1 and not args.replace_all:
        sentence = (
            f'old_string matched {len(plans)} times in "{path}"; '
            "provide a more specific old_string or set replace_all to true"
        )
        raise ToolError(sentence, code="FS_AMBIGUOUS_EDIT", name="FsError")
    out: list[bytes] = [known.bom]
    done = 0
    for change in (change for plan in plans for change in plan.changes):
        start = before.to_original(change.start)
        end = before.to_original(change.end)
        replacement = before.restore(change.start, change.end, change.text)
        if change.start == 0:
            replacement = replacement.removeprefix("\ufeff")  # the file has its mark already
        # Each part is encoded by itself; the codecs here keep no state between characters.
        bare = encoding.Encoding(known.codec)
        out.append(text[done:start].encode(known.codec))
        out.append(encoded("edit", path, replacement, bare))
        done = end
    out.append(text[done:].encode(known.codec))
    return b"".join(out), plans[0].note


async def store(path: str, data: bytes, current: FileRead | None, ctx: ToolContext) -> FileRead:
    """Write, and return what is really there now: an editor may format what it saves."""
    expected = None if current is None else current.version
    version = await ctx.world.write(path, data, expected, real=allowed(path, ctx))
    stored = FileRead(data, version)
    if version.digest != disk.digest(data):
        stored = await ctx.world.read(path, EDITED_BYTES)
    observations(ctx).record(path, stored.version)
    return stored


async def _remarks(path: str, ctx: ToolContext) -> str:
    """What language servers that run already say of the change; see `language_desk.Desk`."""
    desk = ctx.state.get("language")
    return "" if desk is None else await desk.remarks(path, ctx)


def allowed(path: str, ctx: ToolContext) -> str | None:
    """Where `path` must lead: to what was allowed. `None` when nothing had to be."""
    return ctx.allowed[0] if len(ctx.allowed) == 1 else None


def unread_overwrite(path: str) -> ToolError:
    """The model has not seen what it would replace."""
    text = f'cannot overwrite existing "{path}" without reading it first — '
    return ToolError(f"{text}read the file, then retry", code="FS_NOT_OBSERVED", name="FsError")


# ---------------------------------------------------------------- diffs


def _diffs(path: str, before: str | None, after: str) -> list[dict[str, Any]]:
    """The change as a result's `meta` records it; `path` as the model wrote it."""
    if before is None:
        return [{"path": path, "oldText": None, "newText": after}]
    found = hunks(before, after)
    if sum(len(hunk.old) + len(hunk.new) for hunk in found) > RECORDED_CHARS:
        return []
    return [_recorded(path, hunk) for hunk in found]


def _recorded(path: str, hunk: Hunk) -> dict[str, Any]:
    diff: dict[str, Any] = {"path": path, "oldText": hunk.old, "newText": hunk.new}
    if hunk.line > 1:
        diff["line"] = hunk.line
    return diff


def file_diffs(path: str, before: str, after: str) -> tuple[FileDiff, ...]:
    """One diff per place that changes."""
    return tuple(
        FileDiff(path, hunk.old, hunk.new, line=hunk.line if hunk.line > 1 else None)
        for hunk in hunks(before, after)
    )
