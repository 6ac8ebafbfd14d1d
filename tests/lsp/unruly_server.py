"""A language server that misbehaves as its argument says; otherwise it knows one definition.

Run as a program. It speaks LSP by hand, so that it can break every rule.
"""

import json
import os
import signal
import sys
import time
from typing import Any

MODE = sys.argv[1] if len(sys.argv) > 1 else "good"
INPUT, OUTPUT = sys.stdin.buffer, sys.stdout.buffer
HERE = {"start": {"line": 1, "character": 2}, "end": {"line": 1, "character": 5}}


def send(message: Any) -> None:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    OUTPUT.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    OUTPUT.flush()


def receive() -> Any:
    length = 0
    while line := INPUT.readline():
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
        if not line.strip():
            return json.loads(INPUT.read(length))
    sys.exit(0)


def note(word: str) -> None:
    """Leave word of what happened for the test."""
    with open("notes", "a", encoding="utf-8") as file:
        file.write(word + "\n")


def capabilities() -> dict[str, Any]:
    found: dict[str, Any] = {
        "textDocumentSync": 1,
        "definitionProvider": True,
        "referencesProvider": True,
        "hoverProvider": True,
        "documentSymbolProvider": True,
        "workspaceSymbolProvider": True,
    }
    if MODE == "notebooks":
        found["notebookDocumentSync"] = {"notebookSelector": [{"cells": [{"language": 3}]}, 7]}
    return found


def initialize(message: Any) -> None:
    note(f"start {os.getpid()}")
    if MODE == "flood":
        sys.stderr.write("noise\n" * 200_000)
        sys.stderr.flush()
    if MODE == "exit":
        send({"method": "exit", "params": None})
    if MODE == "dies at start":
        sys.stderr.write("error: no licence\n")
        sys.exit(3)
    if MODE == "hangs at start":
        time.sleep(600)
    if MODE == "noise on stdout":
        OUTPUT.write(b"Welcome to the server!\n\nready: yes\r\n\r\n")
    if MODE == "nonsense at start":
        send({"id": message["id"], "result": {"capabilities": 7}})
        return
    if MODE == "asks":
        send(
            {
                "id": 1,
                "method": "workspace/configuration",
                "params": {"items": [{"section": "a.b"}]},
            }
        )
        send({"id": message["id"], "method": "workspace/applyEdit", "params": {"edit": {}}})
        send({"id": "x", "method": "made/up", "params": {}})
        send({"id": "y", "method": "client/registerCapability", "params": {"registrations": 3}})
    send({"id": message["id"], "result": {"capabilities": capabilities()}})


def define(message: Any) -> None:
    id, uri = message["id"], message["params"]["textDocument"]["uri"]
    good = {"id": id, "result": [{"uri": uri, "range": HERE}]}
    if MODE == "nonsense":
        send({"id": id, "result": [{"uri": 3, "range": "nowhere"}]})
    elif MODE == "hangs":
        return
    elif MODE == "dies":
        sys.stderr.write("fatal error: out of ideas\n")
        sys.exit(9)
    elif MODE == "refuses":
        send({"id": id, "error": {"code": -32000, "message": "not today"}})
    elif MODE == "endless message":
        OUTPUT.write(b"Content-Length: 99999999999999\r\n\r\n{")
        OUTPUT.flush()
    elif MODE == "broken json":
        OUTPUT.write(b"Content-Length: 5\r\n\r\n{{{{{")
        OUTPUT.flush()
        send(good)
    elif MODE == "deep json":
        body = b'{"jsonrpc":"2.0","id":"q","result":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
        OUTPUT.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        OUTPUT.flush()
    elif MODE == "other answers":
        send({"id": "nobody", "result": None})
        send({"id": None, "result": None})
        OUTPUT.write(b"Content-Length: 5\r\n\r\n[1,2]")
        send(good)
    elif MODE == "answers twice":
        send(good)
        send(good)
    elif MODE == "elsewhere":
        far = [{"uri": "file:///far/away.x", "range": HERE}, {"uri": "jdt://a/b", "range": HERE}]
        send({"id": id, "result": [*good["result"], *far, *good["result"]]})
    elif MODE == "many":
        places = [
            {"uri": uri, "range": {"start": {"line": n, "character": 0}, "end": HERE["end"]}}
            for n in range(101 if "one" in uri else 150)
        ]
        send({"id": id, "result": places})
    elif MODE == "at work":
        send({"method": "$/progress", "params": {"token": "t", "value": {"kind": "begin"}}})
        send({"id": id, "result": None})
        again = receive()
        send({"method": "$/progress", "params": {"token": "t", "value": {"kind": "end"}}})
        send({"id": again["id"], "result": good["result"]})
    elif MODE == "changes its mind":
        send({"id": id, "error": {"code": -32801, "message": "content modified"}})
        again = receive()
        send({"id": again["id"], "result": good["result"]})
    else:
        send(good)


def hover(message: Any) -> None:
    text = json.dumps({"jsonrpc": "2.0"})
    contents: Any = {"kind": "markdown", "value": text, "jsonrpc": "2.0", "id": 1}
    if MODE == "talks":
        contents = {"kind": "markdown", "value": "x" * 20_000}
    if MODE == "silent":
        send({"id": message["id"], "result": None})
        return
    send({"id": message["id"], "result": {"contents": contents}})


def check(uri: str, version: int, text: str) -> None:
    if MODE == "checks slowly":
        return
    found = [
        {
            "range": HERE,
            "severity": severity,
            "message": f"bad\n  {n}",
            "source": "unruly",
            "code": n,
        }
        for n, severity in enumerate((2, 1, 4))
        if "bad" in text
    ] * (30 if "very" in text else 1)
    params = {"uri": uri, "version": version, "diagnostics": found}
    send({"method": "textDocument/publishDiagnostics", "params": params})


def main() -> None:
    if MODE == "ignores the end":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        message = receive()
        method, params = message.get("method"), message.get("params")
        if method == "initialize":
            initialize(message)
        elif method == "textDocument/definition":
            define(message)
        elif method == "textDocument/references":
            send({"id": message["id"], "result": []})
        elif method == "textDocument/hover":
            hover(message)
        elif method == "textDocument/didOpen":
            document = params["textDocument"]
            check(document["uri"], document["version"], document["text"])
        elif method == "textDocument/didChange":
            document = params["textDocument"]
            check(document["uri"], document["version"], params["contentChanges"][0]["text"])
        elif method == "$/cancelRequest":
            note("cancelled")
        elif method == "shutdown":
            if MODE == "ignores the end":
                continue
            send({"id": message["id"], "result": None})
        elif method == "exit":
            if MODE != "ignores the end":
                return
        elif method is None:
            note(json.dumps(message))


main()
