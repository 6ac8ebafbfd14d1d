"""A small ACP agent for testing the kit: it echoes, asks, edits and runs what the prompt says.

Prompts: `ask` puts a permission question, `form` an elicitation, `read P`, `write P TEXT`,
`run CMD` use the client's files and terminal, `hang` waits for a cancel, `die` exits,
`garbage` prints a line that is not JSON, `sing` sends an update that the protocol does not know,
`env NAME` tells a variable, anything else is echoed.
"""

import json
import os
import queue
import sys
import threading

calls = iter(range(10**9))
waiting: dict[int, queue.Queue] = {}
cancelled: dict[str, threading.Event] = {}
lock = threading.Lock()
style = os.environ.get("FAKE_STYLE", "Echo")


def send(frame):
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **frame}) + "\n")
        sys.stdout.flush()


def ask(method, params):
    id = next(calls)
    waiting[id] = queue.Queue()
    send({"id": id, "method": method, "params": params})
    return waiting[id].get()


def say(sid, text):
    content = {"type": "text", "text": text}
    update = {"sessionUpdate": "agent_message_chunk", "content": content}
    send({"method": "session/update", "params": {"sessionId": sid, "update": update}})


def act(sid, text):
    word, _, rest = text.partition(" ")
    if word == "ask":
        options = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]
        call = {"toolCallId": "call_1", "title": "Do it"}
        params = {"sessionId": sid, "toolCall": call, "options": options}
        say(sid, json.dumps(ask("session/request_permission", params)))
    elif word == "form":
        schema = {"type": "object", "properties": {}}
        params = {"sessionId": sid, "mode": "form", "message": "?", "requestedSchema": schema}
        say(sid, json.dumps(ask("elicitation/create", params)))
    elif word == "read":
        say(sid, json.dumps(ask("fs/read_text_file", {"sessionId": sid, "path": rest})))
    elif word == "write":
        path, _, content = rest.partition(" ")
        params = {"sessionId": sid, "path": path, "content": content}
        say(sid, json.dumps(ask("fs/write_text_file", params)))
    elif word == "run":
        id = ask("terminal/create", {"sessionId": sid, "command": rest})["result"]["terminalId"]
        params = {"sessionId": sid, "terminalId": id}
        status = ask("terminal/wait_for_exit", params)
        say(sid, json.dumps([status, ask("terminal/output", params)]))
        ask("terminal/release", params)
    elif word == "hang":
        say(sid, "partial")
        cancelled[sid].wait()
        return "cancelled"
    elif word == "die":
        os._exit(3)
    elif word == "garbage":
        with lock:
            sys.stdout.write("hello, I am not JSON\n")
    elif word == "sing":
        update = {"sessionUpdate": "song", "content": "la"}
        send({"method": "session/update", "params": {"sessionId": sid, "update": update}})
    elif word == "env":
        say(sid, os.environ.get(rest, "-"))
    else:
        say(sid, f"{style}: {text}")
    return "end_turn"


def prompt(frame):
    sid = frame["params"]["sessionId"]
    cancelled[sid] = threading.Event()
    text = "".join(block.get("text", f"[{block['type']}]") for block in frame["params"]["prompt"])
    send({"id": frame["id"], "result": {"stopReason": act(sid, text)}})


def main():
    sessions = 0
    for line in sys.stdin:
        frame = json.loads(line)
        method, params = frame.get("method"), frame.get("params") or {}
        if method is None:
            waiting[frame["id"]].put(frame.get("error") or frame)
        elif method == "initialize":
            caps = {"promptCapabilities": {"image": False}}
            send({"id": frame["id"], "result": {"protocolVersion": 1, "agentCapabilities": caps}})
        elif method == "session/new":
            sessions += 1
            send({"id": frame["id"], "result": {"sessionId": f"fake-{os.getpid()}-{sessions}"}})
        elif method == "session/prompt":
            threading.Thread(target=prompt, args=(frame,), daemon=True).start()
        elif method == "session/cancel":
            cancelled[params["sessionId"]].set()
        elif "id" in frame:
            error = {"code": -32601, "message": f'"Method not found": {method}'}
            send({"id": frame["id"], "error": error})


main()
