"""A fake provider: an HTTP server on the loopback interface that answers from a script.

It speaks Chat Completions (any path ending in `/chat/completions`) and Anthropic Messages
(`/messages`), lists `/models`, records every request, and can be as unkind as real endpoints are.
Used in this process (`with FakeLlm(["success"]) as fake:`) or as a program of its own
(`dsh-acp fake-llm`), which prints its URL as the first line, in JSON.

A program of its own is steered over HTTP: `GET /_requests` gives what was recorded,
`DELETE /_requests` forgets it, `PUT /_script` replaces the script, `POST /_release` lets held
answers go on. Recorded times are from the monotonic clock, which processes on one machine share.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
import random
import re
import socket
import sys
import threading
import time
from typing import Any, Final, Literal, Self, TypeAlias

from msgspec import Struct

from dsh_acp import jsontext
from dsh_acp.llm import fake_replies
from dsh_acp.llm.fake_http import closed_within, read_request, reset_on_close, send_json
from dsh_acp.llm.fake_replies import BEHAVIORS, RANDOM, Entry, Reply, Wire, fields, reply


class Recorded(Struct, kw_only=True):
    """One request and what became of it; times in nanoseconds of the monotonic clock."""

    attempt: int
    path: str
    headers: dict[str, str]
    body: bytes
    behavior: str = ""
    received_ns: int = 0
    first_ns: int = 0
    last_ns: int = 0
    closed_ns: int = 0
    connection: int = 0
    writes: int = 0
    outcome: Literal["open", "completed", "reset", "stalled", "client_closed", "rejected"] = "open"

    @property
    def json(self) -> Any:
        """The request body, decoded."""
        return jsontext.loads(self.body)


Script: TypeAlias = Sequence[Entry] | Callable[[Recorded], Entry]


class FakeLlm:
    """The server. Each accepted request consumes one script entry, in order.

    A script may also be a function of the recorded request, called in the connection's thread.
    Listening starts at once and ends with `close` or the `with` block.
    """

    def __init__(
        self,
        script: Script = (),
        *,
        port: int = 0,
        repeat_last: bool = False,
        api_key: str | None = None,
        models: Sequence[Any] = ("fake-model",),
        seed: int = 0,
    ) -> None:
        self.requests: Final[list[Recorded]] = []
        self.connections = 0
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._released = threading.Event()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._api_key = api_key
        self._models = models
        self._repeat_last = repeat_last
        self._random = random.Random(seed)
        self.use(script)
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: Final[int] = self._listener.getsockname()[1]
        self.url: Final = f"http://127.0.0.1:{self.port}/v1"
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def use(self, script: Script) -> None:
        """Replace what is left of the script.

        Raises:
            ValueError: an entry names a behaviour that does not exist.
        """
        with self._lock:
            self._choose = script if callable(script) else None
            self._entries = [] if callable(script) else [fields(entry) for entry in script]

    def release(self) -> None:
        """Let answers with `hold_after` go on."""
        self._released.set()

    def wait_for_requests(self, count: int, timeout: float = 5) -> bool:
        """Block until `count` requests have arrived; `False` when they do not in time."""
        with self._arrived:
            return self._arrived.wait_for(lambda: len(self.requests) >= count, timeout)

    def wait_for_outcomes(self, timeout: float = 5) -> bool:
        """Block until no recorded request is open any more; `False` when that takes too long."""
        with self._arrived:
            return self._arrived.wait_for(
                lambda: all(item.outcome != "open" for item in self.requests), timeout
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening and drop every connection."""
        self._released.set()
        # A close alone does not wake a thread that is blocked in accept; a shutdown does.
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._listener.close()
        with self._lock:
            for connection in self._sockets:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
        self._accepting.join(5)
        for thread in self._threads:
            thread.join(5)

    # ---------------------------------------------------------------- connections

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
                self._sockets.add(connection)
                number = self.connections
            thread = threading.Thread(target=self._serve, args=(connection, number), daemon=True)
            self._threads = [t for t in self._threads if t.is_alive()] + [thread]
            thread.start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        rest = b""
        try:
            while (read := read_request(connection, rest)) is not None:
                method, path, headers, body, rest = read
                if not self._answer(connection, number, method, path, headers, body):
                    return
        except OSError:
            return
        finally:
            with self._lock:
                self._sockets.discard(connection)
            connection.close()

    def _answer(
        self,
        connection: socket.socket,
        number: int,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
    ) -> bool:
        received_ns = time.monotonic_ns()
        bare = path.partition("?")[0]
        if bare.startswith("/_"):
            return send_json(connection, *self._control(method, bare, body))
        if method == "GET" and bare.endswith("/models"):
            listed: list[Any] = [{"id": m} if isinstance(m, str) else m for m in self._models]
            return send_json(connection, 200, {"object": "list", "data": listed})
        wire: Wire = "anthropic" if bare.endswith("/messages") else "openai"
        if wire == "openai" and not bare.endswith("/chat/completions"):
            return send_json(connection, 404, {"error": {"message": "no such path"}})
        if method != "POST":
            return send_json(
                connection, 405, {"error": {"message": "POST only"}}, "allow: POST\r\n"
            )
        given = (headers.get("x-api-key"), headers.get("authorization", "").removeprefix("Bearer "))
        if self._api_key is not None and self._api_key not in given:
            error = {"message": "invalid API key", "code": "invalid_api_key"}
            return send_json(connection, 401, {"error": error})
        try:
            jsontext.loads(body)
        except jsontext.DecodeError:
            error = {"message": "the body is not JSON", "code": "invalid_json"}
            return send_json(connection, 400, {"error": error})
        record = Recorded(
            attempt=0,
            path=path,
            headers=headers,
            body=body,
            received_ns=received_ns,
            connection=number,
        )
        with self._arrived:
            record.attempt = len(self.requests) + 1
            self.requests.append(record)
            entry = self._next(record)
            self._arrived.notify_all()
        record.behavior = str(entry.get("behavior", "custom"))
        try:
            return self._send(connection, reply(entry, wire), record)
        except OSError:
            record.outcome = "client_closed"
            return False
        finally:
            record.closed_ns = time.monotonic_ns()
            with self._arrived:
                self._arrived.notify_all()

    def _next(self, record: Recorded) -> dict[str, Any]:
        if self._choose is not None:
            return fields(self._choose(record))
        text = record.body.decode("utf-8", "replace")
        for at, entry in enumerate(self._entries):
            if "when" in entry and not re.search(entry["when"], text):
                continue
            uses = int(entry.get("repeat", 1))
            last = self._repeat_last and at == len(self._entries) - 1
            if uses == 1 and not last:
                del self._entries[at]
            elif uses > 1:
                self._entries[at] = {**entry, "repeat": uses - 1}
            if entry.get("behavior") == "random":
                name = self._random.choices(list(RANDOM), list(RANDOM.values()))[0]
                return fields({**entry, "behavior": name})
            return entry
        return fields("exhausted")

    def _control(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        match method, path:
            case "GET", "/_requests":
                return 200, [
                    {**{f: getattr(item, f) for f in item.__struct_fields__}, "body": item.json}
                    for item in self.requests
                ]
            case "DELETE", "/_requests":
                self.requests.clear()
            case "PUT", "/_script":
                try:
                    self.use(jsontext.loads(body))
                except (ValueError, TypeError, AttributeError) as exc:
                    return 400, {"error": {"message": str(exc)}}
            case "POST", "/_release":
                self.release()
            case _:
                return 404, {"error": {"message": "no such control"}}
        return 200, {}

    # ---------------------------------------------------------------- answers

    def _send(self, connection: socket.socket, answer: Reply, record: Recorded) -> bool:
        if answer.delay_ms and closed_within(connection, answer.delay_ms / 1000):
            record.outcome = "client_closed"
            return False
        if answer.status == 0:
            return _reset(connection, record)
        plain = answer.status != 200 and answer.end == "complete"
        framing = (
            f"content-length: {sum(map(len, answer.pieces))}"
            if plain
            else "transfer-encoding: chunked"
        )
        lines = [f"HTTP/1.1 {answer.status} Scripted", framing]
        lines += [f"{name}: {value}" for name, value in answer.headers]
        head = "\r\n".join([*lines, "", ""]).encode()
        if plain:
            connection.sendall(head + b"".join(answer.pieces))
            record.outcome = "completed"
            return True
        connection.sendall(head)
        for at, piece in enumerate(answer.pieces):
            if at == answer.hold_after:
                self._released.wait(30)
            elif at and answer.piece_delay_ms:
                if closed_within(connection, answer.piece_delay_ms / 1000):
                    record.outcome = "client_closed"
                    return False
            record.last_ns = time.monotonic_ns()
            record.first_ns = record.first_ns or record.last_ns
            connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
            record.writes += 1
        match answer.end:
            case "complete":
                record.outcome = "completed"
                connection.sendall(b"0\r\n\r\n")
                return True
            case "cut":
                record.outcome = "reset"
                return False
            case "reset":
                # What was written must arrive before the reset, which discards what is queued.
                closed_within(connection, 0.01)
                return _reset(connection, record)
            case "stall":
                record.outcome = "open"
                closed_within(connection, None)
                record.outcome = "stalled"
                return False


def _reset(connection: socket.socket, record: Recorded) -> bool:
    record.outcome = "reset"
    reset_on_close(connection)
    return False


# ---------------------------------------------------------------- the program


def _epilog() -> str:
    import textwrap

    def wrapped(words: Sequence[str]) -> str:
        return textwrap.fill(", ".join(words), 78, initial_indent="  ", subsequent_indent="  ")

    about = textwrap.indent((fake_replies.__doc__ or "").partition("\n\n")[2].strip(), "  ")
    return (
        f"Behaviours:\n{wrapped([*BEHAVIORS, 'random'])}\n\nEntries:\n{about}\n\n"
        'Example: dsh-acp fake-llm --port 0 --behavior rate_limit --behavior \'{"text": "Hi."}\'\n'
    )


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="dsh-acp fake-llm",
        description="A fake model provider that answers from a script.",
        epilog=_epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=port_number, default=8000, help="0 chooses a free one")
    parser.add_argument("--script", type=Path, help="a JSON array of entries")
    parser.add_argument(
        "--behavior",
        action="append",
        default=[],
        metavar="NAME|JSON",
        help="an entry: a behaviour's name or a JSON object; may be given several times",
    )
    parser.add_argument("--once", action="store_true", help="do not repeat the last entry")
    parser.add_argument("--api-key", help="refuse requests with another key")
    parser.add_argument("--seed", type=int, default=0, help="for the behaviour random")
    return parser.parse_args(argv)


def port_number(text: str) -> int:
    """A TCP port; 0 stands for any."""
    number = int(text)
    if not 0 <= number < 1 << 16:
        raise argparse.ArgumentTypeError(f"no port: {text}")
    return number


def main(argv: Sequence[str]) -> int:
    """Serve until interrupted. The first line on stdout is JSON and holds the `url`."""
    options = _arguments(argv)
    try:
        script: list[Entry] = jsontext.loads(options.script.read_bytes()) if options.script else []
        script += [
            jsontext.loads(text.encode()) if text.startswith("{") else text
            for text in options.behavior
        ]
        fake = FakeLlm(
            script or ["success"],
            port=options.port,
            repeat_last=not options.once,
            api_key=options.api_key,
            seed=options.seed,
        )
    except (OSError, ValueError, TypeError, AttributeError) as exc:
        sys.stderr.write(f"dsh-acp fake-llm: {exc}\n")
        return 2
    with fake:
        line = jsontext.encode({"url": fake.url, "port": fake.port})
        sys.stdout.write(line.decode() + "\n")
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
