"""The rule of this program: a request leaves only if its log explains it.

`Auditor` proves a request just before it is dispatched, from the log's own bytes. `audit_log`
proves all requests of a finished log, offline. Neither can be turned off for a request.

Why the checks cost little: bytes are read once, and a message that was compared before is
recognised by identity. Only what is new is compared by its text.
"""

from collections.abc import Callable, Iterable, Iterator
import hashlib
from pathlib import Path
from typing import Final

from msgspec import Struct, UnsetType

from dsh_acp import jsontext
from dsh_acp.errors import InvariantError, LogError
from dsh_acp.log import evidence, header as headers
from dsh_acp.log.envelope import Event
from dsh_acp.log.evidence import Attempt, Attempts, Evidence
from dsh_acp.log.history import History
from dsh_acp.log.ledger import Ledger
from dsh_acp.log.load import LoadedLog, load, load_fixture
from dsh_acp.log.packed import ChunkRow
from dsh_acp.messages import EpochHeader, Message, Request

PACKAGE: Final = "@deepseek-ai/dsh-agent-loop"
"""The name under which the format reports a request that its log does not explain."""

_WINDOW: Final = 128
"""How many of the messages that were proved before are looked at again with each request."""

_FIELDS: Final = (
    ("provider", "provider"),
    ("model", "model"),
    ("reasoning_effort", "reasoningEffort"),
    ("temperature", "temperature"),
    ("max_tokens", "maxTokens"),
    ("stop", "stop"),
)


def _violation(text: str) -> InvariantError:
    return InvariantError(PACKAGE, text)


def header_difference(a: EpochHeader, b: EpochHeader) -> str | None:
    """The first field in which two requests' headers differ, framing aside."""
    for name, shown in _FIELDS:
        if getattr(a.config, name) != getattr(b.config, name):
            return shown
    if (a.system or "") != (b.system or ""):
        return "system"
    if a.tools != b.tools and _tools(a) != _tools(b):
        return "tools"
    return None


def _tools(header: EpochHeader) -> bytes:
    return jsontext.encode(() if isinstance(header.tools, UnsetType) else header.tools)


class Auditor:
    """Proves the requests of one live session.

    Feed it the log's bytes, from `offset` on, before each `check`.
    """

    def __init__(self, session_id: str) -> None:
        self.session_id: Final = session_id
        self._ledger = Ledger()
        self._proved_header: tuple[EpochHeader | None, EpochHeader | None] = (None, None)
        self._looked = 0

    @property
    def offset(self) -> int:
        """The number of bytes fed; where the next ones begin."""
        return self._ledger.offset

    def feed(self, lines: bytes) -> None:
        """Read more of the log: complete lines, the session header first. Never raises."""
        self._ledger.feed(lines)

    def check(self, request: Request, *, log_live: bool = True) -> None:
        """Prove that the log explains `request`. One-shots beside the conversation are passed.

        Raises:
            InvariantError: it does not; the request must not leave.
        """
        if type(request) is not Request:
            raise _violation("a loop-built request must be frozen")
        if request.purpose != "conversation":
            return
        name, ledger = request.session_id, self._ledger
        if not name:
            raise _violation("a loop-built request must carry a session id")
        if not log_live or name != self.session_id or ledger.session_id not in (None, name):
            raise _violation(f'a loop-built request must carry a live session id, got "{name}"')
        if type(request.messages) is not tuple:
            raise _violation("a loop-built request must carry a frozen messages array")
        if ledger.issue is not None:
            raise _violation(
                f'llm request for session "{name}" rests on a damaged log: {ledger.issue}'
            )
        if not ledger.saw_step:
            raise _violation("a loop-built request with no step/start in its session log")
        if ledger.header is None:
            raise _violation("a loop-built request with no request/header event in its session log")
        if not self._explains(request.messages, ledger.header):
            raise _violation(
                f'llm request for session "{name}" diverges from the dispatch-time durable'
                " derivation (log-reconstruction desync)"
            )
        if not self._same_header(ledger.header, request.header):
            raise _violation(
                f'llm request for session "{name}" diverges from the folded request header'
            )

    def _explains(self, messages: tuple[Message, ...], header: EpochHeader) -> bool:
        before = len(header.message_prefix or ())
        after = len(header.message_suffix or ())
        end = len(messages) - after
        if end < before:
            return False
        if messages[:before] != header.prefix or messages[end:] != header.suffix:
            return False
        middle = list(messages[before:end])
        # Comparing lists looks at identity first, so what was proved before costs a pointer.
        if middle != self._ledger.derived:
            return False
        self._ledger.adopt(middle)
        return self._is_kept(len(middle), header)

    def _is_kept(self, count: int, header: EpochHeader) -> bool:
        """Whether messages that were proved before were left as they were.

        Only force can change one. What providers keep of a body was encoded before that, so all
        are looked at when another header makes them encode anew, and else some at a time.
        """
        start = self._looked if self._proved_header[0] is header else 0
        end = start + _WINDOW if self._proved_header[0] is header else count
        self._looked = 0 if end >= count else end
        return self._ledger.is_kept(start, end)

    def _same_header(self, logged: EpochHeader, sent: EpochHeader) -> bool:
        known, proved = self._proved_header
        if known is logged and proved is sent:
            return True
        if header_difference(logged, sent) is not None:
            return False
        self._proved_header = (logged, sent)
        return True


# ---------------------------------------------------------------- offline


class RequestAudit(Struct, frozen=True):
    """One request that left, rebuilt from what precedes it in the log.

    `proved` tells whether the recorded digest is that of the rebuilt body; `None` when there is
    no digest, or nobody can build the body. `fingerprint` identifies header and messages.
    """

    turn: int
    step: int
    attempt: int
    seq: int
    messages: int
    fingerprint: str
    extends_previous: bool
    header_reason: str
    digest: str | None = None
    proved: bool | None = None
    difference: str | None = None


class Problem(Struct, frozen=True):
    """Something that a log of what really happened cannot contain; `seq` is where."""

    seq: int
    text: str


class AuditReport(Struct, frozen=True):
    """What an audit found; `fingerprint` identifies the whole conversation."""

    session_id: str
    events: int
    requests: tuple[RequestAudit, ...]
    problems: tuple[Problem, ...]
    fingerprint: str
    torn_bytes: int = 0
    migrated: bool = False

    @property
    def ok(self) -> bool:
        """Nothing is wrong."""
        return not self.problems


def audit_log(
    source: Path | bytes,
    body_of: Callable[[Request], bytes | None] | None = None,
    *,
    fixture: bool = False,
) -> AuditReport:
    """Rebuild every request of a log and say whether the log holds together.

    The log is folded twice, by the live code and by the independent reading, and the two are
    compared at each request. Where a digest was recorded and `body_of` is given, the exact body is
    built again and compared; `None` is a body that cannot be built here, and a `LogError` that it
    raises, as of a damaged attachment, is a problem of that request. Where no body is, what the
    log records twice is compared: input with its inbox entry, answers with their chunks, calls
    with the answer that made them.
    """
    data = source.read_bytes() if isinstance(source, Path) else source
    audit = _Audit(body_of)
    try:
        log = load_fixture(data) if fixture else load(data, close=False)
    except LogError as exc:
        audit.problem(-1, str(exc))
        audit.read_lines(data)
        return audit.report(0, False)
    if log.migrated or fixture:
        data = b"".join(line + b"\n" for line in log.lines())
        audit.read_lines(data, log)
    else:
        audit.read_lines(data[: log.committed], log)
    if b"\n" in log.torn:
        audit.problem(log.seq, "whole lines follow that do not continue the log")
    return audit.report(len(log.torn), log.migrated)


def rebuild_request(session_id: str, events: Iterable[Event | ChunkRow]) -> Request:
    """The request that a log ending with `events` would send, read by the independent code.

    Raises:
        InvariantError: `events` do not amount to a request.
    """
    ledger = Ledger()
    ledger.session_id = session_id
    for event in events:
        ledger.feed(event.encode() + b"\n")
    if ledger.issue is not None or ledger.header is None:
        raise _violation(
            ledger.issue or "a loop-built request with no request/header event in its session log"
        )
    return Request(session_id, ledger.header, ledger.expected())


def requests(data: bytes) -> Iterator[tuple[Attempt, Request]]:
    """Every request of a log's bytes, rebuilt in order, until something is unsound."""
    ledger, attempts = Ledger(), Attempts()
    for text in data.split(b"\n")[:-1]:
        before = ledger.seq
        line = ledger.read(text)
        if ledger.issue is not None:
            return
        attempt = None if line is None else attempts.feed(line, before)
        if attempt is not None and ledger.header is not None:
            yield attempt, Request(ledger.session_id or "", ledger.header, ledger.expected())


class _Audit:
    def __init__(self, body_of: Callable[[Request], bytes | None] | None) -> None:
        self._body_of = body_of
        self._ledger = Ledger()
        self._attempts = Attempts()
        self._evidence = Evidence()
        self._live = History()
        self._requests: list[RequestAudit] = []
        self._problems: list[Problem] = []
        self._doubts: list[Problem] = []
        self._generation = -1
        self._agreed = 0
        self._derivation = hashlib.sha256()
        self._previous_header: EpochHeader | None = None
        self._whole = hashlib.sha256()

    def problem(self, seq: int, text: str) -> None:
        self._problems.append(Problem(seq, text))

    def read_lines(self, data: bytes, log: LoadedLog | None = None) -> None:
        ledger = self._ledger
        entries = iter(()) if log is None else log.entries()
        for text in data.split(b"\n")[:-1]:
            before = ledger.seq
            line = ledger.read(text)
            if ledger.issue is not None:
                if log is not None or not self._problems:
                    self.problem(before, ledger.issue)
                return
            if line is None:
                continue
            for doubt in self._evidence.feed(line, before):
                self._doubts.append(Problem(before, doubt))
            attempt = self._attempts.feed(line, before)
            if attempt is not None:
                self._request(attempt, log is not None)
            entry = next(entries, None)
            if entry is not None:
                self._live.admit(entry)

    def _request(self, attempt: Attempt, with_live: bool) -> None:
        ledger, previous = self._ledger, self._previous_header
        header = ledger.header
        if header is None:
            self.problem(attempt.seq, "a request left before any request/header was logged")
            return
        grows = self._generation == ledger.generation
        if not grows:
            # A replacement rewrote the derivation: everything is compared and hashed again.
            self._generation, self._agreed = ledger.generation, 0
            self._derivation = hashlib.sha256()
        difference = self._live_difference(header) if with_live else None
        for message in ledger.derived[self._agreed :]:
            self._derivation.update(message.json)
        self._agreed = len(ledger.derived)
        mark = self._derivation.copy()
        mark.update(headers.encode(header))
        self._whole.update(mark.digest())
        proved, why = self._prove(attempt, header)
        difference = difference or why
        if difference is not None:
            self.problem(attempt.seq, f"request {attempt.turn}.{attempt.step}: {difference}")
        if proved:
            # What a proved request contains is beyond doubt.
            self._doubts.clear()
        elif attempt.digest is not None:
            # A hook may rewrite claimed input; where a digest was taken, it speaks for the result.
            self._doubts = [doubt for doubt in self._doubts if doubt.text != evidence.REWRITTEN]
        self._requests.append(
            RequestAudit(
                turn=attempt.turn,
                step=attempt.step,
                attempt=attempt.attempt,
                seq=attempt.seq,
                messages=len(header.prefix) + len(ledger.derived) + len(header.suffix),
                fingerprint=mark.hexdigest(),
                extends_previous=(grows and headers.equal(previous, header)) or previous is None,
                header_reason=attempt.header_reason,
                digest=attempt.digest,
                proved=proved,
                difference=difference,
            )
        )
        self._previous_header = header

    def _live_difference(self, header: EpochHeader) -> str | None:
        live, derived = self._live.messages(), self._ledger.derived
        live_header = self._live.request_header()
        if live_header is None:
            return "the live fold has no header"
        start = self._agreed
        if list(live[start:]) != derived[start:]:
            pairs = zip(live[start:], derived[start:], strict=False)
            index = next(
                (start + k for k, (a, b) in enumerate(pairs) if a != b),
                min(len(live), len(derived)),
            )
            return f"message {index} differs between the two derivations"
        field = headers.first_difference(live_header, header)
        return None if field is None else f"header field {field} differs between the two folds"

    def _prove(self, attempt: Attempt, header: EpochHeader) -> tuple[bool | None, str | None]:
        if attempt.digest is None or self._body_of is None:
            return None, None
        ledger = self._ledger
        try:
            body = self._body_of(Request(ledger.session_id or "", header, ledger.expected()))
        except LogError as exc:
            return False, exc.message
        if body is None:
            return None, None
        if hashlib.sha256(body).hexdigest() == attempt.digest:
            return True, None
        return False, "the body differs from the one whose digest was recorded"

    def report(self, torn: int, migrated: bool) -> AuditReport:
        for message in self._ledger.derived[self._agreed :]:
            self._derivation.update(message.json)
        self._whole.update(self._derivation.digest())
        found = sorted([*self._problems, *self._doubts], key=lambda problem: problem.seq)
        return AuditReport(
            session_id=self._ledger.session_id or "",
            events=self._ledger.seq,
            requests=tuple(self._requests),
            problems=tuple(found),
            fingerprint=self._whole.hexdigest(),
            torn_bytes=torn,
            migrated=migrated,
        )
