"""`export`: one session as one archive."""

from pathlib import Path
import sys

from dsh_acp.commands import logs
from dsh_acp.errors import LogError
from dsh_acp.log import export
from dsh_acp.log.attachments import Attachments
from dsh_acp.log.store import Store


class _LogElsewhere(Store):
    """A store in which one file stands for its session."""

    def __init__(self, home: Path, data: bytes) -> None:
        super().__init__(home)
        self._data = data

    def raw(self, id: str) -> bytes:
        """The file."""
        return self._data

    def descendants(self, id: str) -> list[str]:
        """None are known."""
        return []


def main(argv: list[str]) -> int:
    """Write a session as one ZIP: its log, its subagents' logs, what they attach."""
    parser = logs.parser("export", main.__doc__)
    parser.add_argument(
        "-o", "--output", metavar="FILE.zip", type=Path, help="default: dsh-session-ID.zip"
    )
    options = parser.parse_args(argv)
    home = logs.settings(options).home
    store = Store(home)
    path = logs.locate(store, options.name)
    session_id = logs.read(path).header.id
    if store.find(session_id) != path.absolute():
        store = _LogElsewhere(home, logs.read_bytes(path))
    target: Path = options.output or Path(export.file_name(session_id))
    try:
        written = export.write(store, session_id, Attachments(home), target)
    except OSError as exc:
        raise LogError(f"cannot write {target}: {exc.strerror or exc}", code="IO") from exc
    sys.stdout.write(f"{written}\n")
    return 0
