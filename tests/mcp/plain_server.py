"""An MCP server on stdio without any library, so that it starts at once and misbehaves on demand.

Every line that it receives goes to the file in RECORD, with a line `start PID` first.
"""

import argparse
import json
import os
from pathlib import Path
import signal
import subprocess
import sys
import time
from typing import Any

OBJECT = {"type": "object"}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--silent", action="store_true", help="answer nothing")
    parser.add_argument("--flood", type=int, default=0, help="bytes to stderr before anything")
    parser.add_argument("--fail", default="", help="say this on stderr and exit with 3 at once")
    parser.add_argument("--fail-until", default="", help="as --fail, unless this file exists")
    parser.add_argument("--noise", action="store_true", help="print what is no message")
    parser.add_argument("--stubborn", action="store_true", help="ignore EOF and SIGTERM")
    parser.add_argument("--child", default="", help="start a child and write its pid there")
    parser.add_argument("--tools", default="", help="JSON list of tool names")
    parser.add_argument("--once", action="store_true", help="exit after each call")
    parser.add_argument("--modern", action="store_true", help="know no handshake")
    return parser.parse_args()


class Server:
    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked = asked
        self.names = json.loads(asked.tools) if asked.tools else ["echo"]
        self.record = os.environ.get("RECORD")
        self.growing: int | None = None

    def note(self, text: str) -> None:
        if self.record:
            with Path(self.record).open("a", encoding="utf-8") as file:
                file.write(text.rstrip("\n") + "\n")

    def send(self, message: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def run(self) -> None:
        for line in sys.stdin:
            self.note(line)
            if self.asked.silent:
                continue
            message = json.loads(line)
            if "id" not in message or "method" not in message:
                continue
            id = message["id"]
            try:
                result = self.answer(id, message["method"], message.get("params", {}))
            except ValueError as exc:
                self.send({"id": id, "error": {"code": -32602, "message": str(exc)}})
                continue
            if result is not None:
                self.send({"id": id, "result": result})
            if self.growing is not None and message["method"] == "tools/list":
                self.send({"id": self.growing, "result": self.call("echo", {})})
                self.growing = None
            if self.asked.once and message["method"] == "tools/call":
                sys.exit(0)

    def answer(self, id: int, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        match method:
            case "initialize":
                return {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {"listChanged": True}},
                    "serverInfo": {"name": "plain", "version": "1"},
                }
            case "tools/list":
                return {"tools": [{"name": name, "inputSchema": OBJECT} for name in self.names]}
            case "tools/call":
                arguments = params.get("arguments") or {}
                if arguments.get("do") == "grow":
                    # Answered when the client has read the new list.
                    self.growing = id
                    self.names = [*self.names, "more"]
                    self.send({"method": "notifications/tools/list_changed"})
                    return None
                return self.call(params["name"], arguments)
            case "ping":
                return {}
            case _:
                raise ValueError(f"no method {method}")

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
        match arguments.get("do"):
            case "hang":
                return None
            case "crash":
                sys.stderr.write("a wheel came off\n")
                sys.stderr.flush()
                os._exit(4)
            case "refuse":
                raise ValueError("not today")
            case _:
                pass
        shown = {"tool": name, "arguments": arguments, "pid": os.getpid(), "cwd": str(Path.cwd())}
        return {"content": [{"type": "text", "text": json.dumps(shown)}]}


def main() -> None:
    asked = options()
    server = Server(asked)
    server.note(f"start {os.getpid()}")
    if asked.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if asked.child:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path(asked.child).write_text(str(child.pid), encoding="utf-8")
    if asked.flood:
        sys.stderr.write("x" * asked.flood + "\nlast line\n")
        sys.stderr.flush()
    if asked.fail or (asked.fail_until and not Path(asked.fail_until).exists()):
        sys.stderr.write((asked.fail or "not yet") + "\n")
        sys.exit(3)
    if asked.noise:
        sys.stdout.write("Welcome to the server!\n\n[1, 2]\n")
    server.run()
    if asked.stubborn:
        time.sleep(600)


if __name__ == "__main__":
    main()
