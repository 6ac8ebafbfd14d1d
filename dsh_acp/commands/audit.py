"""`audit`: every request of a log, proved from what precedes it."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
import sys
from typing import Any

from dsh_acp import jsontext
from dsh_acp.commands import logs
from dsh_acp.commands.paper import Paper
from dsh_acp.commands.providers import RecordedBodies
from dsh_acp.config import Settings
from dsh_acp.errors import DshError, LogError
from dsh_acp.log.audit import AuditReport, audit_log, requests
from dsh_acp.log.store import Store
from dsh_acp.messages import Request


def main(argv: list[str]) -> int:
    """Rebuild every request of a log from what precedes it, and prove it where a digest was kept.

    Exit code 1 when anything differs. Without a name, every recorded session is audited.
    """
    parser = logs.parser("audit", main.__doc__, named=None)
    parser.add_argument(
        "names", metavar="ID|FILE|DIR", nargs="*", help=f"{logs.NAMED_HELP}, or a directory of logs"
    )
    parser.add_argument("--json", action="store_true", help="the reports as one JSON array")
    parser.add_argument("-v", "--verbose", action="store_true", help="one line per request")
    options = parser.parse_args(argv)
    settings = logs.settings(options)
    store = Store(settings.home)
    paths = [path for name in options.names or [str(store.root)] for path in _paths(store, name)]
    auditor = _Prover(settings)
    paper = Paper()
    found: list[tuple[Path, AuditReport, str]] = []
    for path in paths:
        report, note = auditor.audit(path)
        found.append((path, report, note))
        if not options.json:
            _show(paper, path, report, note, options.verbose)
    if options.json:
        rows = [_fields(path, report, note) for path, report, note in found]
        sys.stdout.write(jsontext.encode(rows).decode() + "\n")
    elif len(found) != 1:
        wrong = sum(not report.ok for _, report, _ in found)
        count = sum(len(report.requests) for _, report, _ in found)
        open_ = sum(report.ok and bool(note) for _, report, note in found)
        more = f"; {open_} not proved" if open_ else ""
        paper.line(f"{len(found)} logs, {count} requests; {wrong or 'none'} with problems{more}")
    return 0 if all(report.ok for _, report, _ in found) else 1


def _paths(store: Store, name: str) -> list[Path]:
    directory = Path(name).expanduser()
    if not directory.is_dir():
        return [logs.locate(store, name)]
    found = sorted(directory.rglob("session*.jsonl"))
    if not found and directory != store.root:
        raise LogError(f"there is no session log under {directory}", code="NOT_FOUND")
    return found


class _Prover:
    """Audits logs, with bodies of the configured providers; they are loaded on first need."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def _bodies(self) -> RecordedBodies:
        return RecordedBodies(self._settings)

    def audit(self, path: Path) -> tuple[AuditReport, str]:
        data = logs.read_bytes(path)
        if logs.is_fixture(data):
            return audit_log(data, fixture=True), ""
        if b'"request/digest"' not in data:
            return audit_log(data), ""
        try:
            unknown = self._unknown_providers(data)
            if not unknown:
                lost: list[str] = []
                report = audit_log(data, self._body_of(data, lost))
                return report, "; ".join(dict.fromkeys(lost))
            note = (
                f"digests not checked: {', '.join(unknown)} not configured here;"
                " audit it with the settings it was made with, as by --config FILE"
            )
        except DshError as exc:
            note = f"digests not checked: {exc.message}"
        return audit_log(data), note

    def _body_of(self, data: bytes, lost: list[str]) -> Callable[[Request], bytes | None]:
        """Builds the bodies of a log; `lost` gets what keeps one from being built."""
        digests = iter([attempt.digest for attempt, _ in requests(data) if attempt.digest])

        def body(request: Request) -> bytes | None:
            try:
                found = self._bodies.body(request, next(digests, None))
            except LogError as exc:
                # A log may have been brought here without its attachments, which accuses nobody.
                if exc.code != "ATTACHMENT_MISSING":
                    raise
                lost.append(exc.message)
                return None
            return b"" if found is None else found

        return body

    def _unknown_providers(self, data: bytes) -> list[str]:
        found = {
            request.config.provider
            for attempt, request in requests(data)
            if attempt.digest and not self._is_known(request, attempt.digest)
        }
        return sorted(found)

    def _is_known(self, request: Request, digest: str) -> bool:
        try:
            return self._bodies.body(request, digest) is not None
        except LogError:
            return True  # it is an attachment that is amiss, which is told with its request


def _show(paper: Paper, path: Path, report: AuditReport, note: str, verbose: bool) -> None:
    proved = sum(request.proved is True for request in report.requests)
    digests = sum(request.digest is not None for request in report.requests)
    count = len(report.requests)
    facts = [f"{report.events} events", f"{count} request{'' if count == 1 else 's'}"]
    if digests:
        facts.append(f"{proved} of {digests} recorded bodies proved")
    if report.torn_bytes:
        facts.append(f"a torn end of {report.torn_bytes} bytes left out")
    if report.migrated:
        facts.append("read from an older form")
    facts.extend([note] if note else [])
    name = report.session_id or str(path)
    verdict, style = ("ok ", "green") if report.ok else ("BAD", "bold red")
    if report.ok and digests > proved:
        verdict, style = "NOT PROVED", "bold yellow"
    paper.line(f"{verdict} {name}  {', '.join(facts)}  {path}", style)
    if verbose:
        for request in report.requests:
            how = "extends the one before" if request.extends_previous else "starts anew"
            state = {True: "proved", False: "differs", None: "rebuilt"}[request.proved]
            header = f", header {request.header_reason}" if request.header_reason else ""
            paper.line(
                f"      {request.turn}.{request.step} attempt {request.attempt} at #{request.seq}:"
                f" {request.messages} messages, {how}{header}, {state}"
            )
    for problem in report.problems:
        where = f"#{problem.seq}: " if problem.seq >= 0 else ""
        paper.line(f"      {where}{problem.text}", "red")


def _fields(path: Path, report: AuditReport, note: str) -> dict[str, Any]:
    return {
        "path": str(path),
        "sessionId": report.session_id,
        "ok": report.ok,
        "events": report.events,
        "tornBytes": report.torn_bytes,
        "migrated": report.migrated,
        "fingerprint": report.fingerprint,
        "note": note,
        "problems": [{"seq": one.seq, "text": one.text} for one in report.problems],
        "requests": [
            {
                "turn": one.turn,
                "step": one.step,
                "attempt": one.attempt,
                "seq": one.seq,
                "messages": one.messages,
                "header": one.header_reason,
                "extendsPrevious": one.extends_previous,
                "sha256": one.digest,
                "proved": one.proved,
                "difference": one.difference,
            }
            for one in report.requests
        ],
    }
