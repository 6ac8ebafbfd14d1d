"""A title from the model, in the background, once the first turn has ended.

The request is logged whole, because it is not part of the conversation. It is never in the way:
it has no tools and few tokens, stops when the session closes, and a failure leaves the old title.
"""

import logging

from dsh_acp import jsontext
from dsh_acp.agent import titles
from dsh_acp.agent.parts import Parts
from dsh_acp.errors import DshError
from dsh_acp.llm.assemble import Assembler
from dsh_acp.log.payloads import UserMessage
from dsh_acp.log.plugin_payloads import SessionTitle, SessionTitleLlmRequest
from dsh_acp.messages import CallConfig, EpochHeader, Message, Request, Text, text_of

_log = logging.getLogger(__name__)
_MAX_CHARS = 4000


def is_owed(parts: Parts) -> bool:
    """Whether the title is still the fallback one."""
    parts.folds.catch_up()
    return parts.titles.is_fallback and bool(parts.titles.message_seqs)


async def improve(parts: Parts) -> None:
    """Ask the model for a title and record it. Failures are noted on stderr and nothing else."""
    try:
        await _improve(parts)
    except DshError as exc:
        _log.info("no better title: %s", exc)


async def _improve(parts: Parts) -> None:
    seqs = parts.titles.message_seqs
    messages = [parts.log.event(seq).payload for seq in seqs]
    said = [
        {"seq": seq, "text": item.message.text[:_MAX_CHARS]}
        for seq, item in zip(seqs, messages, strict=True)
        if isinstance(item, UserMessage)
    ]
    chosen = parts.services.settings.title_model
    provider, model = (
        parts.options.route() if chosen is None else parts.services.providers.resolve(chosen)
    )
    ask = Message.user(
        (Text(titles.REQUEST + jsontext.encode(said).decode()),),
        {"kind": "plugin", "plugin": "dsh-session-title-llm"},
    )
    config = CallConfig(provider=provider.name, model=model, max_tokens=titles.MAX_TOKENS)
    route = {"provider": provider.name, "model": model}
    parts.log.append(
        SessionTitleLlmRequest(
            titles.PROVIDER,
            seqs,
            route,
            titles.SYSTEM,
            (jsontext.loads(ask.json),),
            titles.MAX_TOKENS,
        )
    )
    request = Request(
        parts.log.header.id,
        EpochHeader(config=provider.prepare(config).config, system=titles.SYSTEM),
        (ask,),
        purpose="session-title",
    )
    assembler = Assembler()
    async for batch in provider.stream(request, provider.body(request)):
        for chunk in batch:
            assembler.feed(chunk)
    title = titles.clean(text_of(assembler.blocks()))
    if assembler.finish.kind != "stop" or not title or not is_owed(parts):
        return
    source = {"kind": "provider", "provider": titles.PROVIDER, "model": route}
    parts.log.append(SessionTitle(title, seqs, source))
