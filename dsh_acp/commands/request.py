"""`request`: what the model got for one step, rebuilt from the log."""

import argparse
from hashlib import sha256
import re
import sys

import msgspec
from msgspec import Raw

from dsh_acp import jsontext
from dsh_acp.commands import logs
from dsh_acp.commands.paper import Paper
from dsh_acp.commands.providers import RecordedBodies
from dsh_acp.errors import LogError
from dsh_acp.log import header as headers
from dsh_acp.log.audit import requests
from dsh_acp.log.evidence import Attempt
from dsh_acp.log.store import Store
from dsh_acp.messages import Request


def main(argv: list[str]) -> int:
    """Print one request of a session as JSON, or its exact body; without --step, list them."""
    parser = logs.parser("request", main.__doc__)
    parser.add_argument("--step", metavar="T.S", type=_step, help="turn and step, for example 2.1")
    parser.add_argument("--attempt", type=int, metavar="N", help="default: the last one")
    parser.add_argument("--body", action="store_true", help="the bytes that were sent, as they are")
    parser.add_argument("--json", action="store_true", help="one line instead of indented text")
    options = parser.parse_args(argv)
    settings = logs.settings(options)
    log = logs.read(logs.locate(Store(settings.home), options.name))
    found = list(requests(b"".join(line + b"\n" for line in log.lines())))
    if options.step is None:
        if options.body:
            parser.error("--body needs --step")
        _list([attempt for attempt, _ in found], [request for _, request in found], options.json)
        return 0
    attempt, request = _choose(found, options.step, options.attempt)
    if not options.body:
        text = _encode(attempt, request)
        sys.stdout.write((text if options.json else msgspec.json.format(text)).decode() + "\n")
        return 0
    body = RecordedBodies(settings).body(request, attempt.digest)
    if body is None:
        name = request.config.provider
        text = f'the provider "{name}" is not configured, so its body cannot be built'
        raise LogError(text, code="NOT_FOUND")
    sys.stdout.flush()
    sys.stdout.buffer.write(body)
    sys.stdout.buffer.flush()
    if attempt.digest is not None and sha256(body).hexdigest() != attempt.digest:
        sys.stderr.write("dsh-acp: these are not the bytes whose digest was recorded\n")
        return 1
    return 0


def _step(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)\.(\d+)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not TURN.STEP, for example 2.1")
    return int(match[1]), int(match[2])


def _choose(
    found: list[tuple[Attempt, Request]], step: tuple[int, int], number: int | None
) -> tuple[Attempt, Request]:
    here = [one for one in found if (one[0].turn, one[0].step) == step]
    if number is not None:
        here = [one for one in here if one[0].attempt == number]
    if here:
        return here[-1]
    what = f"{step[0]}.{step[1]}" + (f" attempt {number}" if number is not None else "")
    steps = dict.fromkeys(f"{attempt.turn}.{attempt.step}" for attempt, _ in found)
    known = ", ".join(list(steps)[:20]) + (", …" if len(steps) > 20 else "")
    raise LogError(f"no request {what} left; there are: {known or 'none'}", code="NOT_FOUND")


def _encode(attempt: Attempt, request: Request) -> bytes:
    return jsontext.encode(
        {
            "sessionId": request.session_id,
            "turn": attempt.turn,
            "step": attempt.step,
            "attempt": attempt.attempt,
            "seq": attempt.seq,
            "sha256": attempt.digest,
            "header": Raw(headers.encode(request.header)),
            "messages": [Raw(message.json) for message in request.messages],
        }
    )


def _list(attempts: list[Attempt], sent: list[Request], as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "turn": attempt.turn,
                "step": attempt.step,
                "attempt": attempt.attempt,
                "seq": attempt.seq,
                "messages": len(request.messages),
                "header": attempt.header_reason,
                "sha256": attempt.digest,
            }
            for attempt, request in zip(attempts, sent, strict=True)
        ]
        sys.stdout.write(jsontext.encode(rows).decode() + "\n")
        return
    Paper().table(
        ("STEP", "ATTEMPT", "AT", "MESSAGES", "MODEL", "HEADER", "SHA-256"),
        [
            (
                f"{attempt.turn}.{attempt.step}",
                str(attempt.attempt),
                f"#{attempt.seq}",
                str(len(request.messages)),
                request.config.model,
                attempt.header_reason,
                (attempt.digest or "")[:12],
            )
            for attempt, request in zip(attempts, sent, strict=True)
        ],
        right=(1, 3),
    )
