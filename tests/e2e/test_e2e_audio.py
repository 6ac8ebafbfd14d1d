"""Recordings, from an editor's prompt to the endpoint's bytes and back, through real processes."""

import base64
from collections.abc import Callable
import hashlib
import os
from pathlib import Path
import subprocess
import sys
from typing import Any

from e2e_agent import Agent, Frame, bodies, environment, events_of, log_of
import pytest

from dsh_acp.llm.fake import FakeLlm

Start = Callable[..., Agent]
FORM = b"fmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0"
WAV = b"RIFF\x2c\0\0\0WAVE" + FORM + b"data\x08\0\0\0" + b"\x80" * 8
DIGEST = hashlib.sha256(WAV).hexdigest()
SOUND = {"type": "audio", "data": base64.b64encode(WAV).decode(), "mimeType": "audio/wav"}
HEARD = {"type": "input_audio", "input_audio": {"data": SOUND["data"], "format": "wav"}}
WORDS = {"type": "text", "text": "What was said?"}


def listen(agent: Agent, session: str) -> Frame:
    return agent.call("session/prompt", sessionId=session, prompt=[SOUND, WORDS])


def typed(body: Frame, number: int = 0) -> Any:
    """The content of a message that a person wrote, without what the program adds."""
    users = [m["content"] for m in body["messages"] if m["role"] == "user"]
    return [content for content in users if "Current runtime context" not in str(content)][number]


def audited(agent: Agent, session: str) -> tuple[int, str]:
    """The exit code and the words of an audit in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "dsh_acp", "audit", session],
        env=environment(agent.home, "http://127.0.0.1:9/v1"),
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.returncode, (done.stdout + done.stderr).decode()


def kept(agent: Agent) -> Path:
    return agent.home / ".dsh-acp" / "attachments" / "v1" / "objects" / DIGEST[:2] / DIGEST


@pytest.fixture
def hearing(start: Start) -> Agent:
    return start(DSH_ACP_MODEL="openai/gpt-audio")


def test_the_endpoint_gets_the_recording_that_the_log_names_in_every_later_life(
    start: Start, hearing: Agent, fake: FakeLlm
) -> None:
    session = hearing.open()
    assert listen(hearing, session)["result"] == {"stopReason": "end_turn"}
    assert typed(bodies(fake)[0]) == [HEARD, WORDS]
    log = log_of(hearing.home, session).read_bytes()
    assert SOUND["data"].encode() not in log and log.count(DIGEST.encode()) >= 2
    hearing.close()
    again = start(DSH_ACP_MODEL="openai/gpt-audio")
    again.initialize()
    again.load(session)
    shown = [update["content"] for update in again.updates("user_message_chunk")]
    assert shown == [SOUND, WORDS]
    assert again.prompt(session, "again")["result"] == {"stopReason": "end_turn"}
    first, second = (r.body for r in fake.requests if b'"tools"' in r.body)
    assert second.startswith(first[: first.rindex(b'],"stream":true')])
    rows = events_of(log_of(again.home, session).read_bytes())
    digests = [row["data"]["sha256"] for row in rows if row["type"] == "request/digest"]
    assert digests == [hashlib.sha256(body).hexdigest() for body in (first, second)]
    code, words = audited(again, session)
    assert code == 0, words


def test_a_fork_hears_it_too(hearing: Agent, fake: FakeLlm) -> None:
    session = hearing.open()
    listen(hearing, session)
    params = {"sessionId": session, "cwd": str(hearing.cwd), "mcpServers": []}
    forked = hearing.call("session/fork", **params)["result"]["sessionId"]
    assert hearing.prompt(forked, "and then?")["result"] == {"stopReason": "end_turn"}
    assert typed(bodies(fake)[-1]) == [HEARD, WORDS]
    assert audited(hearing, forked)[0] == 0


def test_a_model_that_does_not_hear_reads_of_it_and_the_next_that_hears_gets_it(
    start: Start, tmp_path: Path, fake: FakeLlm
) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[providers.openai.models."gpt-audio-mini"]\n', encoding="utf-8")
    hearing = start(DSH_ACP_MODEL="openai/gpt-audio", DSH_ACP_CONFIG=str(config))
    session = hearing.open()
    listen(hearing, session)
    for model in ("openai/gpt-4o", "openai/gpt-audio-mini"):
        params = {"sessionId": session, "configId": "model", "value": model}
        frame = hearing.call("session/set_config_option", **params)
        assert "result" in frame, frame
        assert hearing.prompt(session, "and now?")["result"] == {"stopReason": "end_turn"}
    deaf, heard = (typed(body) for body in bodies(fake)[1:])
    why = "this model does not hear it"
    assert deaf == f"[recording not sent: audio/wav, {len(WAV)} bytes; {why}]{WORDS['text']}"
    assert heard == [HEARD, WORDS]
    code, words = audited(hearing, session)
    assert code == 0, words


def test_a_model_that_never_heard_is_told_of_a_file(start: Start, fake: FakeLlm) -> None:
    agent = start(DSH_ACP_MODEL="openai/gpt-4o")
    session = agent.open()
    assert listen(agent, session)["result"] == {"stopReason": "end_turn"}
    content = typed(bodies(fake)[0])
    path = Path(content.split("was saved to ")[1].split(";")[0])
    assert path.read_bytes() == WAV and "the current model does not hear" in content
    assert "choose a model that hears (none of those to choose from does)" in agent.said()
    assert not kept(agent).exists() and SOUND["data"] not in str(bodies(fake))


def test_settings_say_who_hears_except_where_the_wire_has_no_place_for_it(
    start: Start, tmp_path: Path, fake: FakeLlm
) -> None:
    config = tmp_path / "config.toml"
    claude = '[providers.anthropic]\napi_key = "sk-e2e-secret"\n'
    claude += f'base_url = "{fake.url.removesuffix("/v1")}"\n'
    hears = "audio = true\n"
    config.write_text(
        f"[providers.openai.models.m]\n{hears}{claude}[providers.anthropic.models.c]\n{hears}",
        encoding="utf-8",
    )
    agent = start(DSH_ACP_CONFIG=str(config))
    session = agent.open()
    listen(agent, session)
    assert typed(bodies(fake)[0]) == [HEARD, WORDS]
    other = start(DSH_ACP_CONFIG=str(config), DSH_ACP_MODEL="anthropic/c")
    session = other.open()
    assert listen(other, session)["result"] == {"stopReason": "end_turn"}
    assert "the current model does not hear" in str(bodies(fake)[-1]["messages"])
    assert "choose a model that hears (openai/m)" in other.said()


@pytest.mark.parametrize("how", ["deleted", "damaged"])
def test_a_recording_that_is_gone_or_changed_never_leaves_and_is_named(
    start: Start, hearing: Agent, fake: FakeLlm, how: str
) -> None:
    session = hearing.open()
    listen(hearing, session)
    hearing.close()
    if how == "deleted":
        os.unlink(kept(hearing))
    else:
        kept(hearing).write_bytes(WAV.replace(b"\x80", b"\x81"))
    agent = start(DSH_ACP_MODEL="openai/gpt-audio")
    agent.initialize()
    agent.load(session)
    told = [update["content"] for update in agent.updates("user_message_chunk")]
    assert told[0] == {"type": "text", "text": f"[recording sha256:{DIGEST}]"}
    count = len(fake.requests)
    error = agent.prompt(session, "again")["error"]
    assert DIGEST in error["message"] and "\n" not in error["message"]
    assert ("missing" if how == "deleted" else "corrupt") in error["message"]
    assert len(fake.requests) == count
    # What is gone accuses nobody; what was changed does.
    code, words = audited(agent, session)
    assert DIGEST in words and "Traceback" not in words
    assert (code, words.split("  ")[0][:10].strip()) == (
        (0, "NOT PROVED") if how == "deleted" else (1, f"BAD {session}"[:10])
    )
    kept(agent).write_bytes(WAV)
    assert agent.prompt(session, "once more")["result"] == {"stopReason": "end_turn"}
    assert typed(bodies(fake)[-1]) == [HEARD, WORDS]
