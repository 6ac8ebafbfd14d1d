"""What is measured: one function per promise, each beside the floor in the same run."""

from collections.abc import Callable, Iterator, Sequence
import itertools
import json
from pathlib import Path
import statistics
import subprocess
import sys
import tempfile
import time

from histories import load
from lab import KINDS, MS, Lab, Row, alternate, at_most, median, times_floor
from processes import Endpoint
from stopping import cancel, crash
from versions import versions

PULSES, PULSE_MS = 100, 20
STAMP_DIGITS = 20

# ---------------------------------------------------------------- starting


def start(lab: Lab) -> list[Row]:
    """From spawn to the answer to `initialize`, and from end of input to exit."""
    exits: dict[str, list[float]] = {kind: [] for kind in KINDS}

    def sample(kind: str) -> list[float]:
        agent = lab.agent(kind)
        took = (agent.initialize() - agent.started) / MS
        exits[kind].append(agent.exit() / MS)
        return [took]

    alternate(2, sample)  # bytecode and the file cache
    for values in exits.values():
        values.clear()
    found = alternate(15, sample)
    real, floor = median(found["real"]), median(found["floor"])
    gone = at_most("exit", "exit on EOF", median(exits["real"]), median(exits["floor"]), 100)
    return [times_floor("start", "spawn to initialize", real, floor, 1.6), gone]


def first_chunk(lab: Lab) -> list[Row]:
    """From spawn to the first piece of an answer, nothing awaited that need not be."""
    lab.endpoint.script([{"text": "hello", "repeat": 0}])

    def sample(kind: str) -> list[float]:
        with lab.agent(kind) as agent:
            shake = {"protocolVersion": 1, "clientCapabilities": {}}
            agent.send("initialize", shake)
            session = agent.new_session()
            agent.start_prompt(session, "hi")
            return [(agent.first_chunk() - agent.started) / MS]

    found = alternate(10, sample)
    real, floor = median(found["real"]), median(found["floor"])
    return [times_floor("first-chunk", "spawn to first chunk", real, floor, 4)]


def new_session(lab: Lab) -> list[Row]:
    """`session/new` in a process that is warm."""
    lab.endpoint.script([{"text": "hello", "repeat": 0}])

    def sample(kind: str) -> list[float]:
        with lab.session(kind) as (agent, _):
            found = []
            for _ in range(20):
                sent = time.monotonic_ns()
                params = {"cwd": str(agent.cwd), "mcpServers": []}
                at, _ = agent.answer(agent.send("session/new", params))
                found.append((at - sent) / MS)
            return found

    found = alternate(2, sample)
    return [at_most("new", "session/new", median(found["real"]), median(found["floor"]), 3)]


# ---------------------------------------------------------------- prompting


def prompt(lab: Lab) -> list[Row]:
    """From a prompt to its request, and from the model's first byte to the editor's update."""
    firsts: dict[str, list[float]] = {kind: [] for kind in KINDS}

    def sample(kind: str) -> list[float]:
        lab.endpoint.script([{"text": "hello there", "repeat": 0}])
        with lab.session(kind) as (agent, session):
            sent, seen = [], []
            for _ in range(20):
                agent.updates.clear()
                sent.append(time.monotonic_ns())
                id = agent.start_prompt(session, "hi")
                seen.append(agent.first_chunk())
                agent.answer(id)
        requests = lab.endpoint.requests()[-20:]
        firsts[kind] += [
            (at - request["first_ns"]) / MS for at, request in zip(seen, requests, strict=True)
        ]
        return [
            (request["received_ns"] - at) / MS for at, request in zip(sent, requests, strict=True)
        ]

    found = alternate(3, sample)
    first = {kind: median(values) for kind, values in firsts.items()}
    return [
        at_most("request", "prompt to request", median(found["real"]), median(found["floor"]), 2.5),
        times_floor("first-update", "first byte to update", first["real"], first["floor"], 2.5),
    ]


def chunks(lab: Lab) -> list[Row]:
    """A stream of 10,000 chunks, all shown and all durable."""
    count = 10_000
    logged: list[int] = []

    def sample(kind: str) -> list[float]:
        entry = {"text": "word ", "deltas": count, "burst": 40, "repeat": 0}
        lab.endpoint.script([{"text": "warm"}, entry])
        with lab.session(kind) as (agent, session):
            agent.updates.clear()
            answered, _ = agent.answer(agent.start_prompt(session, "go"))
            first = lab.endpoint.requests()[-1]["first_ns"]
            shown = sum(len(text) for _, text in agent.texts())
        if shown != 5 * count:
            raise RuntimeError(f"{shown} of {5 * count} characters were shown")
        if kind == "real":
            logged.append(logged_texts(agent.home / "state").count("word "))
        return [count / ((answered - first) / 1e9)]

    found = alternate(3, sample)
    real, floor = median(found["real"]), median(found["floor"])
    whole = all(number == count for number in logged)
    note = "" if whole else f"the log holds {min(logged)} of them"
    met = real >= 30_000 and whole
    return [Row("chunks", "10,000 durable chunks", "/s", real, floor, "≥ 30,000/s", met, note)]


def logged_texts(state: Path) -> list[str]:
    """Every text delta in every log below `state`."""
    found: list[str] = []
    for path in state.rglob("*.jsonl"):
        for line in path.read_bytes().splitlines():
            if line.startswith(b'{"type":"text-chunks"'):
                found += json.loads(line)["data"]["texts"]
            elif line.startswith(b'{"type":"assistant/chunk"'):
                chunk = json.loads(line)["data"]["chunk"]
                if chunk["type"] == "text-delta":
                    found.append(chunk["text"])
    return found


def tools(lab: Lab) -> list[Row]:
    """A hundred tool calls in one turn: from the end of an answer to the next request."""
    trips: list[float] = []
    growth: list[float] = []
    for _ in range(3):
        calls = [
            {"tool_calls": [{"id": f"c{n}", "name": "read", "arguments": {"file_path": "a.txt"}}]}
            for n in range(100)
        ]
        lab.endpoint.script([{"text": "warm"}, *calls, {"text": "done", "repeat": 0}])
        with lab.session("real") as (agent, session):
            (agent.cwd / "a.txt").write_text("one\ntwo\n", encoding="utf-8")
            agent.prompt(session, "go")
        requests = lab.endpoint.requests()[1:]
        if len(requests) != 101:
            raise RuntimeError(f"{len(requests)} requests instead of 101")
        trip = [(b["received_ns"] - a["last_ns"]) / MS for a, b in itertools.pairwise(requests)]
        trips += trip
        growth.append(median(trip[-10:]) / median(trip[:10]))
    factor = median(growth)
    grown = f"≤ {1.3:g} ×"
    return [
        at_most("tool", "tool round trip", median(trips), None, 3),
        Row("tool-growth", "last ten of 100 / first", "×", factor, None, grown, factor <= 1.3),
    ]


def growth(lab: Lab) -> list[Row]:
    """How the way from prompt to request grows over 50 turns of 12 KB, and the memory then."""
    memory: dict[str, list[float]] = {kind: [] for kind in KINDS}
    shares: dict[str, list[float]] = {kind: [] for kind in KINDS}

    def sample(kind: str) -> list[float]:
        lab.endpoint.script([{"text": "answer " * 877, "chunk_size": 512, "repeat": 0}])
        with lab.session(kind) as (agent, session):
            sent = [agent.prompt(session, "prompt " * 877) for _ in range(50)]
            rss, pss = agent.memory()
        requests = lab.endpoint.requests()[-50:]
        memory[kind].append(rss)
        shares[kind].append(pss)
        taken = [(r["received_ns"] - at) / MS for at, r in zip(sent, requests, strict=True)]
        return [slope(taken)]

    found = alternate(3, sample)
    real, floor = median(found["real"]), median(found["floor"])
    rss = {kind: median(values) for kind, values in memory.items()}
    note = f"proportional share {median(shares['real']):.0f} MiB"
    limit = 55
    return [
        Row("growth", "growth per 12 KB turn", "ms", real, floor, "≤ 0.05 ms", real <= 0.05),
        Row(
            *("memory", "memory after 50 turns", "MiB", rss["real"], rss["floor"]),
            *(f"≤ {limit} MiB", rss["real"] <= limit, note),
        ),
    ]


def slope(values: Sequence[float]) -> float:
    """The median slope between points (Theil and Sen): one slow turn does not tilt it."""
    points = list(enumerate(values))
    return median(
        (b - a) / (n - m) for (m, a), (n, b) in itertools.combinations(points, 2) if n - m > 10
    )


def concurrent(lab: Lab) -> list[Row]:
    """Twenty sessions, each streaming 50 chunks a second: how late a chunk is shown."""

    def sample(kind: str) -> list[float]:
        script = Path(__file__).with_name("pulse.py")
        pulse = subprocess.Popen(
            [sys.executable, str(script), str(PULSES), str(PULSE_MS)], stdout=subprocess.PIPE
        )
        try:
            url = f"http://127.0.0.1:{int(pulse.stdout.readline())}/v1"
            with lab.agent(kind, url) as agent:
                agent.initialize()
                sessions = [agent.new_session() for _ in range(20)]
                waiting = {agent.start_prompt(session, "go") for session in sessions}
                while waiting:
                    _, frame = agent.receive()
                    if frame.method is None:
                        waiting.discard(frame.id)
                texts = agent.texts()
        finally:
            pulse.terminate()
            pulse.wait()
            pulse.stdout.close()
        stamps = [
            (int(text[k : k + STAMP_DIGITS]), at)
            for at, text in texts
            for k in range(0, len(text), STAMP_DIGITS)
        ]
        if len(stamps) != 20 * PULSES:
            raise RuntimeError(f"{len(stamps)} of {20 * PULSES} chunks were shown")
        # Beginning twenty turns at once is another matter than streaming them.
        begun = sorted(sent for sent, _ in stamps)[0] + 500 * MS
        return [(at - sent) / MS for sent, at in stamps if sent > begun]

    found = alternate(2, sample)
    p99 = {kind: statistics.quantiles(values, n=100)[98] for kind, values in found.items()}
    what = "20 × 50 chunks/s, p99"
    return [at_most("concurrent", what, p99["real"], p99["floor"], 2.5)]


ROWS: dict[str, Callable[[Lab], list[Row]]] = {
    "start": start,
    "first-chunk": first_chunk,
    "new": new_session,
    "prompt": prompt,
    "chunks": chunks,
    "tools": tools,
    "growth": growth,
    "concurrent": concurrent,
    "cancel": cancel,
    "load": load,
    "crash": crash,
    "versions": versions,
}


def measure(names: Sequence[str], told: Callable[[str], None]) -> Iterator[Row]:
    """Run the groups `names`; a group that fails is one row that says why."""
    with tempfile.TemporaryDirectory(prefix="dsh-acp-bench-") as folder:
        with Endpoint(Path(folder)) as endpoint:
            lab = Lab(Path(folder), endpoint)
            for name in names:
                told(name)
                try:
                    yield from ROWS[name](lab)
                except (RuntimeError, OSError, EOFError, ValueError, KeyError) as exc:
                    note = f"could not be measured: {exc or type(exc).__name__}"
                    yield Row(name, name, "", float("nan"), None, "", False, note)
