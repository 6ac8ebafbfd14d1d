"""`lab`: one session as a page on which the check can be watched, and attacked.

The page is one file without any network: style, script and log are inside it, and its content
security policy admits nothing else. Its script rebuilds every request from the log with the same
rule as the program, so a reader can see a request pass, tamper with the log or the request, and see
it stopped.
"""

import base64
from collections.abc import Iterable
import hashlib
from importlib import resources
from pathlib import Path
import sys
from typing import Any, Final, cast

from dsh_acp import jsontext
from dsh_acp.commands import logs
from dsh_acp.errors import LogError
from dsh_acp.log.packed import MalformedRow, decode_row, is_row
from dsh_acp.log.store import Store

_ESCAPES: Final = {
    "<": r"\u003c",
    ">": r"\u003e",
    "&": r"\u0026",
    "\u2028": r"\u2028",
    "\u2029": r"\u2029",
}


def page(log: bytes) -> str:
    """The HTML page for `log`, the text of a session file.

    A last line without its newline is left out, as on every load. Lines that do not parse are kept:
    the page shows them and its check refuses them.

    Raises:
        LogError: `CORRUPT`, when the first line is not a session header.
    """
    header, *lines = log[: log.rfind(b"\n") + 1].split(b"\n")[:-1] or [b""]
    data = jsontext.encode({"id": _session_id(header), "lines": list(_complete(lines))}).decode()
    for char, escape in _ESCAPES.items():
        data = data.replace(char, escape)
    style, script = _part("page.css"), _part("rule.js") + _part("page.js")
    html = _part("page.html")
    for place, text in (
        ("/*csp-style*/", _policy(style)),
        ("/*csp-script*/", _policy(script)),
        ("/*style*/", style),
        ("/*script*/", script),
        ("/*data*/", data),
    ):
        html = html.replace(place, text, 1)
    return html


def _part(name: str) -> str:
    return resources.files("dsh_acp.commands").joinpath("lab_data", name).read_text("utf-8")


def _policy(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _session_id(line: bytes) -> str:
    try:
        header = jsontext.loads(line)
    except jsontext.DecodeError:
        header = None
    if not isinstance(header, dict) or "id" not in header:
        raise LogError("this is not a session log: its first line is not a header", code="CORRUPT")
    return str(cast(dict[str, Any], header)["id"])


def _complete(lines: Iterable[bytes]) -> Iterable[str]:
    """The lines as text; `seq` and `time` are filled in where a recorded fixture left them out."""
    seq = 0
    for line in lines:
        if not line.strip():
            continue
        try:
            event = jsontext.loads(line)
        except jsontext.DecodeError:
            event = None
        numbered = line
        if isinstance(event, dict):
            numbered = _numbered(line, cast(dict[str, Any], event), seq)
        yield numbered.decode("utf-8", "replace")
        try:
            seq = decode_row(numbered).end_seq if is_row(numbered) else seq + 1
        except MalformedRow:
            seq += 1


def _numbered(line: bytes, event: dict[str, Any], seq: int) -> bytes:
    order, clock = ("seq0", "time0") if is_row(line) else ("seq", "time")
    if order in event or "type" not in event:
        return line
    first = jsontext.encode({"type": event.pop("type"), order: seq, clock: 0})
    return first[:-1] + b"," + jsontext.encode(event)[1:]


def main(argv: list[str]) -> int:
    """Write one session as a page on which its requests can be watched, checked and attacked."""
    parser = logs.parser("lab", main.__doc__)
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="default: lab-ID.html")
    options = parser.parse_args(argv)
    path = logs.locate(Store(logs.settings(options).home), options.name)
    data = logs.read_bytes(path)
    if not data.lstrip().startswith(b"{"):
        raise LogError(f"{path} is not a session log", code="CORRUPT")
    html = page(data)
    target: Path = options.output or Path(f"lab-{path.parent.name}.html")
    try:
        target.write_text(html, encoding="utf-8")
    except OSError as exc:
        raise LogError(f"cannot write {target}: {exc.strerror or exc}", code="IO") from exc
    sys.stdout.write(f"{target}\n")
    if sys.stdout.isatty():
        sys.stdout.write("Open it in a browser; it needs no network.\n")
    return 0
