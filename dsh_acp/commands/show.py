"""`show`: one session as a transcript, with what each step cost and read from the cache."""

from datetime import UTC, datetime
import sys
from typing import Any, Final

from dsh_acp import jsontext
from dsh_acp.agent import usage
from dsh_acp.agent.usage import PriceOf, UsageFold
from dsh_acp.commands import logs, transcript
from dsh_acp.commands.paper import Paper
from dsh_acp.commands.providers import find_price
from dsh_acp.commands.transcript import Item, Kind, Transcript
from dsh_acp.errors import LogError
from dsh_acp.log.catalog import Tracker
from dsh_acp.log.load import LoadedLog
from dsh_acp.log.store import Store

_LABELS: Final[dict[Kind, str]] = {
    "user": "you",
    "note": "note",
    "thought": "thinks",
    "answer": "agent",
    "call": "calls",
    "result": "result",
    "failed": "failed",
    "cache": "cache",
    "end": "end",
}
_STYLES: Final[dict[Kind, str]] = {
    "user": "bold",
    "note": "dim",
    "header": "dim",
    "thought": "dim italic",
    "call": "cyan",
    "result": "dim",
    "failed": "red",
    "usage": "dim",
    "cache": "yellow",
    "event": "dim",
    "end": "dim",
}
_LINES: Final[dict[Kind, int]] = {"note": 2, "thought": 6, "call": 6, "result": 12, "failed": 12}
"""How much is shown of a long piece unless everything is asked for."""


def main(argv: list[str]) -> int:
    """Read a session: what was said and done, with the cost and cache read of each step."""
    parser = logs.parser("show", main.__doc__)
    parser.add_argument("--full", action="store_true", help="long outputs and notes in full")
    parser.add_argument("--json", action="store_true", help="the pieces and totals as JSON")
    options = parser.parse_args(argv)
    settings = logs.settings(options)
    store, price_of = Store(settings.home), find_price(settings)
    log = logs.read(logs.locate(store, options.name))
    told = transcript.read(log.entries(), price_of)
    children = _children(store, log.header.id, price_of)
    if options.json:
        sys.stdout.write(_json(log, told, children) + "\n")
        return 0
    paper = Paper()
    _heading(paper, log)
    for item in told.items:
        _show(paper, item, options.full)
    _totals(paper, told.usage, children)
    return 0


def _children(store: Store, id: str, price_of: PriceOf) -> list[UsageFold]:
    """What each subagent of a session, and theirs, has used by itself."""
    found: list[UsageFold] = []
    for child in store.descendants(id):
        try:
            log = store.read(child)
        except LogError as exc:
            sys.stderr.write(f"dsh-acp: warning: a subagent is not counted: {exc}\n")
            continue
        own = log.events(log.header.seed_length or 0)
        found.append(usage.fold((e for e in own if e.type in UsageFold.types), price_of))
    return found


def _heading(paper: Paper, log: LoadedLog) -> None:
    header = log.header
    summary = Tracker.of(header, log.entries()).summary()
    paper.line(summary.title or header.id, "bold")
    facts = [header.id, header.cwd or "no directory", _when(header.created_at)]
    if header.parent_session:
        facts.append(f"from {header.parent_session}")
    paper.line(" · ".join(facts), "dim")


def _when(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _show(paper: Paper, item: Item, full: bool) -> None:
    if item.kind == "turn":
        paper.rule(f"{item.text} · {_when(item.facts['time'])}")
        return
    text = item.text.rstrip("\n")
    limit = _LINES.get(item.kind)
    lines = text.split("\n")
    if limit is not None and not full and len(lines) > limit:
        text = "\n".join([*lines[:limit], f"… {len(lines) - limit} more lines (--full)"])
    paper.block(_LABELS.get(item.kind, ""), text, _STYLES.get(item.kind, ""))


def _totals(paper: Paper, own: UsageFold, children: list[UsageFold]) -> None:
    if not own.session.requests:
        return
    paper.rule("in all")
    paper.line(_sum(own))
    if children:
        theirs = _together(children)
        count = f"{len(children)} subagent{'' if len(children) == 1 else 's'}"
        paper.line(f"{count}: {_sum(theirs)}")
        paper.line(f"together: {_sum(_together([own, theirs]))}")


def _together(parts: list[UsageFold]) -> UsageFold:
    whole = UsageFold(lambda provider, model: None)
    for part in parts:
        whole.include(part)
    return whole


def _sum(used: UsageFold) -> str:
    totals = used.session
    prompt = totals.input + totals.cache_read + totals.cache_write
    rate = totals.cache_read / prompt if prompt else 0
    costs = [transcript.money(amount, name) for name, amount in used.costs.items()]
    if used.unpriced:
        costs.append(f"{used.unpriced} of unknown price")
    answers = f"{totals.requests} answer{'' if totals.requests == 1 else 's'}"
    return (
        f"{answers}: {prompt:,} tokens in, {rate:.0%} of them from the cache,"
        f" {transcript.out(totals.output, totals.reasoning)}; {' + '.join(costs)}"
    )


def _json(log: LoadedLog, told: Transcript, children: list[UsageFold]) -> str:
    return jsontext.encode(
        {
            "id": log.header.id,
            "cwd": log.header.cwd,
            "createdAt": log.header.created_at,
            "parentSession": log.header.parent_session,
            "items": told.items,
            "totals": _figures(told.usage),
            "subagents": {"sessions": len(children), **_figures(_together(children))},
        }
    ).decode()


def _figures(used: UsageFold) -> dict[str, Any]:
    totals = used.session
    return {
        "answers": totals.requests,
        "inputTokens": totals.input,
        "outputTokens": totals.output,
        "cacheReadTokens": totals.cache_read,
        "cacheWriteTokens": totals.cache_write,
        "reasoningTokens": totals.reasoning,
        "costs": used.costs,
        "unpriced": used.unpriced,
    }
