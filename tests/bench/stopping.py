"""Measurements of stopping, by wish and by force."""

import time

from lab import MS, Lab, Row, alternate, at_most, median


def cancel(lab: Lab) -> list[Row]:
    """From `session/cancel` to the prompt's answer, and to the end of the model's connection."""
    closed: list[float] = []

    def sample(kind: str) -> list[float]:
        stalled = {"text": "thinking ", "deltas": 3, "finish": None, "end": "stall", "repeat": 0}
        lab.endpoint.script([{"text": "warm"}, stalled])
        found = []
        with lab.session(kind) as (agent, session):
            for _ in range(8):
                id = agent.start_prompt(session, "go")
                agent.first_chunk()
                time.sleep(0.02)  # let the rest of the stream pass
                sent = time.monotonic_ns()
                agent.notify("session/cancel", {"sessionId": session})
                at, result = agent.answer(id)
                if result["stopReason"] != "cancelled":
                    raise RuntimeError(f"the answer was {result}")
                found.append((at - sent) / MS)
                if kind == "real":
                    time.sleep(0.02)
                    last = lab.endpoint.requests()[-1]["closed_ns"]
                    closed.append((last - sent) / MS if last else float("inf"))
        return found

    found = alternate(2, sample)
    real, floor = median(found["real"]), median(found["floor"])
    return [
        at_most("cancel", "cancel to answer", real, floor, 2.5),
        at_most("cancel-close", "cancel to closed connection", median(closed), None, 10),
    ]


def crash(lab: Lab) -> list[Row]:
    """kill -9 in the middle of a stream: how old what the editor saw and a load lacks may be."""
    lost = []
    for _ in range(3):
        lab.endpoint.script([{"text": "w ", "deltas": 1000, "chunk_delay_ms": 5, "repeat": 0}])
        with lab.agent("real") as agent:
            agent.initialize()
            session = agent.new_session()
            agent.start_prompt(session, "go")
            end = agent.first_chunk() + 1_000 * MS
            while agent.receive()[0] < end:
                pass
            killed = time.monotonic_ns()
            agent.kill()
        seen = [at for at, text in agent.texts() for _ in range(len(text) // 2)]
        with lab.agent("real", home=agent.home) as again:
            again.initialize()
            params = {"sessionId": session, "cwd": str(again.cwd), "mcpServers": []}
            again.answer(again.send("session/load", params))
            back = sum(len(text) // 2 for _, text in again.texts())
        lost.append((killed - seen[back]) / MS if back < len(seen) else 0.0)
    note = "age of the oldest chunk that was seen and lost"
    worst = max(lost)
    row = Row("crash", "kill -9, then load", "ms", worst, None, "≤ 100 ms", worst <= 100, note)
    return [row]
