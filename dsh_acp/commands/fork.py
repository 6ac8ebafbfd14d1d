"""`fork`: a new session that begins with another one's past."""

from pathlib import Path
import sys

from dsh_acp import jsontext
from dsh_acp.commands import logs
from dsh_acp.errors import LogError
from dsh_acp.log.packed import ChunkRow, Entry, pack
from dsh_acp.log.session_log import SessionLog
from dsh_acp.log.store import Store


def main(argv: list[str]) -> int:
    """Start a new session from an earlier point of one; its id is printed."""
    parser = logs.parser("fork", main.__doc__)
    parser.add_argument(
        "--at", type=int, metavar="SEQ", help="the last event to keep; default: all"
    )
    parser.add_argument("--json", action="store_true", help="id, parent and event as JSON")
    options = parser.parse_args(argv)
    store = Store(logs.settings(options).home)
    if store.memory_only is not None:
        raise LogError(f"a fork cannot be kept: {store.memory_only}", code="IO")
    path = logs.locate(store, options.name)
    parent = logs.read(path).header.id
    if store.find(parent) == path.absolute():
        child = store.fork(parent, options.at)
    else:
        child = _fork_file(store, path, options.at)
    try:
        kept = child.header.seed_length or 0
        if options.json:
            facts = {"id": child.header.id, "parentSession": parent, "at": kept - 1}
            sys.stdout.write(jsontext.encode(facts).decode() + "\n")
        else:
            sys.stdout.write(child.header.id + "\n")
            events = "1 event" if kept == 1 else f"{kept} events"
            sys.stderr.write(f"It begins with {events} of {parent}. Open it in your editor.\n")
    finally:
        child.close()
    return 0


def _fork_file(store: Store, path: Path, at: int | None) -> SessionLog:
    """A session from a log that lies elsewhere; a fixture's placeholder directory becomes ours."""
    source = logs.read(path)
    last = source.stored_seq - 1
    if at is not None and not 0 <= at <= last:
        text = (
            f'fork boundary {at} does not exist in session "{source.header.id}" (last seq: {last})'
        )
        raise LogError(text, code="INVALID_BOUNDARY")
    end = (last if at is None else at) + 1
    entries: list[Entry] = []
    for entry in source.entries():
        if entry.end_seq <= end:
            entries.append(entry)
        elif isinstance(entry, ChunkRow) and entry.seq < end:
            entries.extend(pack([entry.part(0, end - entry.seq)]))
    cwd = source.header.cwd
    if cwd is not None and cwd.startswith("{{"):
        cwd = str(Path.cwd())
    return store.create(cwd, parent=source.header.id, seed=entries, seed_length=end)
