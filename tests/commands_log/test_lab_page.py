"""The page decides as the program does, for every tampering, and in the same words."""

from collections.abc import Callable
import json
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Raw
import pytest

from dsh_acp import jsontext
from dsh_acp.commands.lab import main, page
from dsh_acp.errors import InvariantError
from dsh_acp.log.audit import Auditor, audit_log, requests
from dsh_acp.messages import CallConfig, EpochHeader, Message, Request, ToolSchema

pytestmark = pytest.mark.browser

UNREADABLE = "cannot be read"

# Cases name their texts by number: most of them have most texts in common.
CASES = """
  lab.hide(true);
  const texts = new Map();
  const number = (text) => {
    if (!texts.has(text)) texts.set(text, texts.size);
    return texts.get(text);
  };
  const cases = [];
  const look = async (what) => {
    const request = lab.request();
    const messages = request.messages.map(number);
    const lines = lab.log().map(number);
    cases.push({ what, lines, request: { ...request, messages }, verdict: await lab.send() });
  };
"""
EVERY_TAMPERING = f"""async () => {{{CASES}
  for (const k of [2, lab.requests.length]) {{
    lab.jump(k);
    await look(`request ${{k}}, honest`);
    for (const cover of [true, false]) {{
      lab.cover(cover);
      for (let row = 0; row < lab.rows(); row += 1) {{
        for (const act of ["delete", "duplicate", "up", "down"]) {{
          lab.act(act, row);
          await look(`request ${{k}}, ${{act}} row ${{row}}, cover ${{cover}}`);
          lab.undo();
        }}
      }}
    }}
    lab.cover(true);
  }}
  return {{ cases, texts: [...texts.keys()] }};
}}"""

EVERY_MUTATION = f"""async () => {{{CASES}
  for (let k = 0; k <= lab.requests.length; k += 1) {{
    lab.jump(k);
    for (const chip of document.querySelectorAll("#mutations button")) {{
      lab.mutate(chip.dataset.id, true);
      await look(`request ${{k}}, ${{chip.dataset.id}}`);
      lab.undo();
    }}
  }}
  return {{ cases, texts: [...texts.keys()] }};
}}"""

EVERY_EDIT = f"""async (edits) => {{{CASES}
  lab.end();
  for (const [row, text] of edits) {{
    lab.act("edit", row, text);
    await look(`row ${{row}}: ${{text}}`);
    lab.undo();
  }}
  return {{ cases, texts: [...texts.keys()] }};
}}"""


def cases(shown: Any, script: str, *arguments: Any) -> list[dict[str, Any]]:
    """What the page said to each case of `script`, with texts in place of their numbers."""
    found = shown.evaluate(script, *arguments)
    texts = found["texts"]
    for case in found["cases"]:
        case["lines"] = [texts[k] for k in case["lines"]]
        case["request"]["messages"] = [texts[k] for k in case["request"]["messages"]]
    return found["cases"]


class ThawedRequest(Request, frozen=True):
    """A copy that something could still change."""


def request_of(shown: dict[str, Any]) -> Request:
    """The page's request as the program's."""
    texts = shown["header"]
    fields = {
        key: json.loads(texts[key])
        for key in ("provider", "model", "reasoningEffort", "temperature", "maxTokens", "stop")
        if texts.get(key)
    }
    tools = msgspec.json.decode(texts.get("tools") or "[]", type=tuple[ToolSchema, ...])
    header = EpochHeader(
        config=msgspec.convert(fields, CallConfig),
        system=json.loads(texts["system"]) if texts.get("system") else UNSET,
        tools=tools or UNSET,
        message_prefix=tuple(Raw(text.encode()) for text in texts["prefix"]) or UNSET,
        message_suffix=tuple(Raw(text.encode()) for text in texts["suffix"]) or UNSET,
    )
    messages: Any = tuple(Message(text.encode()) for text in shown["messages"])
    if not shown["messagesFrozen"]:
        messages = list(messages)
    kind = Request if shown["frozen"] else ThawedRequest
    return kind(session_id=shown["sessionId"], header=header, messages=messages)


def program_says(log: Path, lines: list[str], shown: dict[str, Any]) -> str | None:
    """What the program says before this request would leave."""
    auditor = Auditor("5e55107a-0001")
    header = log.read_bytes().partition(b"\n")[0]
    auditor.feed(b"".join([header + b"\n", *(line.encode() + b"\n" for line in lines)]))
    try:
        auditor.check(request_of(shown))
    except InvariantError as exc:
        return str(exc)
    return None


def disagreements(
    log: Path, found: list[dict[str, Any]]
) -> list[tuple[str, str | None, str | None]]:
    """Cases in which page and program do not say the same."""
    wrong: list[tuple[str, str | None, str | None]] = []
    for case in found:
        verdict = case["verdict"]
        expected = program_says(log, case["lines"], case["request"])
        told = verdict["text"] or None
        if expected and UNREADABLE in expected and told:
            # The words of the JSON reader differ; the place and the refusal do not.
            expected, told = (text.partition(UNREADABLE)[0] for text in (expected, told))
        if told != expected or verdict["passed"] != (expected is None):
            wrong.append((case["what"], told, expected))
    return wrong


@pytest.fixture
def shown(recorded: Path, open_page: Callable[..., Any]) -> Any:
    return open_page(page(recorded.read_bytes()), viewport={"width": 1360, "height": 860})


def test_page_and_program_agree_on_every_deletion_duplication_and_move(
    recorded: Path, shown: Any
) -> None:
    found = cases(shown, EVERY_TAMPERING)

    assert len(found) > 500
    assert disagreements(recorded, found) == []
    assert {case["verdict"]["id"] for case in found} >= {None, "log", "derivation"}
    header = recorded.read_bytes().partition(b"\n")[0] + b"\n"
    for case in found:
        if case["verdict"]["id"] == "log":
            log = header + b"".join(line.encode() + b"\n" for line in case["lines"])
            report = audit_log(log)
            assert report.problems or report.torn_bytes, case["what"]


def test_page_and_program_agree_on_every_change_to_the_request(recorded: Path, shown: Any) -> None:
    found = cases(shown, EVERY_MUTATION)

    assert disagreements(recorded, found) == []
    told = {case["verdict"]["id"] for case in found}
    assert told >= {"frozen", "session", "live", "messages-frozen", "derivation", "fields"}


def test_page_and_program_agree_on_edited_entries(recorded: Path, shown: Any) -> None:
    lines = recorded.read_text("utf-8").splitlines()[1:]
    edits: list[tuple[int, str]] = []
    for row, line in enumerate(lines):
        event = json.loads(line)
        edits.append((row, line.replace("e", "3")))
        edits.append((row, line[:-1]))
        for key in list(event):
            fewer = {name: value for name, value in event.items() if name != key}
            edits.append((row, jsontext.encode(fewer).decode()))
        more = [{**event, key: 1} for key in ("seq0", "time0", "unheard")]
        edits.extend((row, jsontext.encode(one).decode()) for one in more)
        event["data"] = None
        edits.append((row, jsontext.encode(event).decode()))
    found = cases(shown, EVERY_EDIT, edits)

    assert disagreements(recorded, found) == []


def test_the_page_finds_the_requests_that_the_program_finds(recorded: Path, shown: Any) -> None:
    expected = [
        (attempt.turn, attempt.step, attempt.attempt, len(request.messages))
        for attempt, request in requests(recorded.read_bytes())
    ]
    told = shown.evaluate(
        """() => lab.requests.map(({ turn, step, attempt }, k) => {
             lab.jump(k);
             return [turn, step, attempt, lab.request().messages.length];
           })"""
    )

    assert [tuple(one) for one in told] == expected


@pytest.mark.parametrize(
    "name",
    [
        "packed-chunks",
        "parallel-tool-calls",
        "empty-response-retry",
        "cancel-tool-calls",
        "subagent-continuable",
        "workflow-run",
        "read-image",
    ],
)
def test_a_recorded_session_of_the_harness_can_be_shown_and_each_request_passes(
    name: str, shared: Path, open_page: Callable[..., Any]
) -> None:
    log = shared / "dsh-sessions" / name / "session.jsonl"
    shown = open_page(page(log.read_bytes()))
    told = shown.evaluate(
        """async () => {
             const told = [];
             for (let k = 0; k <= lab.requests.length; k += 1) {
               lab.jump(k);
               told.push((await lab.send()).text);
             }
             return told;
           }"""
    )
    assert len(told) > 1
    assert set(told) == {""}


def test_a_villain_is_stopped_at_the_fork_and_told_why(shown: Any) -> None:
    shown.select_option("#jump", label="2 · turn 1, step 2")
    result = shown.locator("#log-list .row", has_text="tool/result")
    result.click()
    assert "hello" in shown.inner_text("#entry-json")
    shown.get_by_role("button", name="Delete").click()
    shown.get_by_role("button", name="Send next request").click()
    banner = shown.locator("#verdict.bad")
    banner.wait_for()

    assert "The request never left." in banner.inner_text()
    assert (
        'invariant violated by "@deepseek-ai/dsh-agent-loop": llm request for session'
        ' "5e55107a-0001" diverges from the dispatch-time durable derivation'
        " (log-reconstruction desync)"
    ) in banner.inner_text()
    assert shown.locator("#log-list .row.fork.deleted").count() == 1
    assert "nothing" in shown.locator("#request-list .row.fork").inner_text()
    assert shown.locator("#checks .ok").count() == 7
    assert shown.locator("#checks .bad").inner_text().endswith("equals its derivation")

    shown.get_by_role("button", name="Undo all").click()
    shown.get_by_role("button", name="Send next request").click()
    shown.locator("#verdict.good").wait_for()
    assert shown.locator(".fork").count() == 0


def test_the_first_difference_is_marked_on_both_sides(shown: Any) -> None:
    shown.evaluate("lab.jump(1)")
    shown.get_by_role("button", name="Reword the last message").click()
    shown.get_by_role("button", name="Send next request").click()
    fork = shown.locator("#request-list .row.fork")
    fork.wait_for()
    assert fork.locator("mark").count() == 2
    assert "Trust me." in fork.locator("mark").nth(1).inner_text()
    fork.click()
    assert shown.locator("#detail[open] mark").count() == 2


def test_everything_can_be_done_with_the_keyboard(shown: Any) -> None:
    keys = shown.keyboard
    shown.focus("#log-list")
    for key in ("n", "n", "End", "ArrowUp", "Home", "PageDown", "ArrowUp"):
        keys.press(key)
    active = shown.get_attribute("#log-list", "aria-activedescendant")
    assert shown.get_attribute(f"#{active}", "aria-selected") == "true"
    shown.evaluate(
        "logList.choose(state.view.findIndex((item) => item.line.type === 'user/message'))"
    )
    keys.press("Delete")
    keys.press("s")
    shown.locator("#verdict.bad").wait_for()
    keys.press("Delete")
    keys.press("e")
    shown.fill("#editor-text", "not json at all")
    shown.get_by_role("button", name="Rewrite history").click()
    shown.get_by_role("button", name="Send next request").click()
    shown.locator("#verdict.bad code", has_text="rests on a damaged log").wait_for()


def test_play_streams_the_log_and_sends_each_request(shown: Any) -> None:
    shown.select_option("#speed", "2000")
    shown.get_by_role("button", name="Play").click()
    shown.locator("#request-note", has_text="After the last entry").wait_for()

    assert shown.evaluate("state.sent.size === lab.requests.length && lab.requests.length") == 4
    assert "Play" in shown.inner_text("#play")


def test_step_passes_the_gate_before_the_answer_streams(shown: Any) -> None:
    shown.emulate_media(reduced_motion="reduce")
    shown.evaluate("lab.jump(0)")
    before = shown.evaluate("state.played")
    shown.get_by_role("button", name="Step").click()
    shown.locator("#verdict.good").wait_for()
    assert shown.evaluate("state.played") == before
    shown.get_by_role("button", name="Step").click()
    assert shown.evaluate("state.played") == before + 1


def test_a_play_that_meets_a_villain_stops_at_the_gate(shown: Any) -> None:
    shown.evaluate("lab.jump(1)")
    shown.get_by_role("button", name="Switch the model").click()
    shown.select_option("#speed", "2000")
    shown.get_by_role("button", name="Play").click()
    shown.locator("#verdict.bad", has_text="folded request header").wait_for()
    assert shown.evaluate("state.playing") is False
    assert "The fork is in the header: model." in shown.inner_text("#verdict")


def test_the_page_fits_a_phone_and_follows_the_theme(
    recorded: Path, open_page: Callable[..., Any]
) -> None:
    html = page(recorded.read_bytes())
    phone = open_page(
        html, viewport={"width": 360, "height": 740}, is_mobile=True, color_scheme="dark"
    )
    assert phone.evaluate("document.documentElement.scrollWidth") == 360
    colour = "getComputedStyle(document.body).backgroundColor"
    dark = phone.evaluate(colour)
    phone.get_by_role("button", name="Colours: as the system").click()
    light = phone.evaluate(colour)
    assert light != dark
    phone.get_by_role("button", name="Colours: light").click()
    assert phone.evaluate(colour) == dark


def test_every_control_has_a_name(shown: Any) -> None:
    unnamed = shown.evaluate(
        """() => [...document.querySelectorAll("button, input, select, textarea, [role=listbox]")]
             .filter((node) => !(node.textContent.trim() || node.ariaLabel || node.labels?.length))
             .map((node) => node.outerHTML)"""
    )
    assert unnamed == []


def test_text_in_the_log_cannot_become_part_of_the_page(recorded: Path, shown: Any) -> None:
    html = page(recorded.read_bytes())
    assert "</script><b>loudly" not in html
    shown.evaluate("lab.end()")
    assert shown.locator("b", has_text="loudly").count() == 0
    assert "</script><b>loudly</b>" in "".join(shown.evaluate("lab.log()"))


def test_a_long_log_is_drawn_only_where_it_is_seen(open_page: Callable[..., Any]) -> None:
    lines = ['{"type":"session","version":0,"id":"long","createdAt":1,"delegationDepth":0}']
    seq = 0

    def add(kind: str, data: Any, **more: Any) -> None:
        nonlocal seq
        event = {"type": kind, "seq": seq, "time": seq, "data": data, **more}
        lines.append(jsontext.encode(event).decode())
        seq += 1

    add("turn/start", {"turn": 1})
    add("step/start", {"turn": 1, "step": 1})
    header = {"header": {"config": {"provider": "p", "model": "m"}}, "reason": "initial"}
    add("request/header", header)
    while seq < 20_000:
        content = [{"type": "text", "text": f"note {seq}"}]
        source = {"kind": "user"}
        message = {"content": content, "source": source, "role": "user", "id": f"m{seq}"}
        add("user/message", message, surfaceOp="append")
    shown = open_page(page(("\n".join(lines) + "\n").encode()))
    shown.evaluate("lab.end()")

    assert shown.evaluate("lab.request().messages.length") == 19_997
    assert shown.evaluate("document.querySelectorAll('*').length") < 1500
    shown.focus("#log-list")
    shown.keyboard.press("Home")
    shown.locator("#log-list-0").wait_for()
    shown.evaluate("lab.act('delete', 10000)")
    assert shown.evaluate("lab.send()")["fork"]["key"] == 9_997
    assert "note 10000" in shown.locator("#request-list .row.fork").inner_text()


def test_the_command_writes_the_page_of_a_session_or_a_file(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("5e55107a", str(recorded)):
        target = tmp_path / "lab.html"
        assert main([name, "-o", str(target)]) == 0
        assert capsys.readouterr().out == f"{target}\n"
        assert target.read_text("utf-8") == page(recorded.read_bytes())
