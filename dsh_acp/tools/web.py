"""The web: `web_fetch`, and `web_search` where a search service is configured.

A page is somebody's text, never an instruction. Addresses of this machine and its network are
fetched only when the person allowed that very address, or the configuration names it.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final, cast

from anyio import to_thread

from dsh_acp import jsontext
from dsh_acp.errors import ToolError
from dsh_acp.tools.builtin import Builtin, text_outcome
from dsh_acp.tools.tool import Intent, Outcome, ToolContext

if TYPE_CHECKING:
    from dsh_acp.tools import talk_arguments as arguments

MAX_CHARS: Final = 200_000
MAX_SOURCES: Final = 8
_TRUNCATED: Final = (
    "\n\n(Content truncated. Fetch a more specific URL or section for the full text.)"
)
_CITE: Final = "Cite the relevant URLs above as markdown links in your answer."


def _host(url: str) -> str:
    from urllib.parse import urlsplit

    try:
        return (urlsplit(url if "://" in url else f"https://{url}").hostname or "").rstrip(".")
    except ValueError:
        return ""


class WebFetch(Builtin):
    """Fetches one page. `private_hosts` are those nearby that may be fetched."""

    name = "web_fetch"
    is_concurrent = True

    def __init__(self, private_hosts: Collection[str] = ()) -> None:
        self._private = frozenset(host.lower() for host in private_hosts)

    def intent(self, args: "arguments.WebFetch", cwd: str) -> Intent:
        """Fetches; "always" covers the host."""
        from dsh_acp.tools.addresses import is_nearby

        host = _host(args.url.strip())
        near = f"{host} is this machine or on its network" if is_nearby(host) else None
        return Intent(effect="fetch", cwd=cwd, scope=host, reason=near)

    async def run(self, args: "arguments.WebFetch", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        from dsh_acp.tools import fetching, pages
        from dsh_acp.tools.addresses import is_nearby

        url = fetching.checked(args.url)
        # Only a host whose place could be seen in the question was allowed by answering it.
        seen = _host(url) if ctx.is_approved and is_nearby(_host(url)) else None

        def may_be_near(host: str) -> bool:
            return host.rstrip(".").lower() in self._private or host.rstrip(".") == seen

        page = await fetching.fetch(url, may_be_near)
        text = await to_thread.run_sync(pages.text_of, page, abandon_on_cancel=True)
        head = f"Fetched {page.url} (HTTP {page.status})\n\n"
        truncated = page.truncated or len(head) + len(text) > MAX_CHARS
        if truncated:
            text = text[: MAX_CHARS - len(head) - len(_TRUNCATED)] + _TRUNCATED
        meta = {"url": page.url, "statusCode": page.status, "truncated": truncated}
        return text_outcome(head + text, meta)


class WebSearch(Builtin):
    """Asks a SearXNG service; several queries are merged by rank."""

    name = "web_search"
    is_concurrent = True

    def __init__(self, service: str) -> None:
        self._service = service

    def intent(self, args: Any, cwd: str) -> Intent:
        """Fetches; "always" covers every search."""
        return Intent(effect="fetch", cwd=cwd)

    async def run(self, args: "arguments.WebSearch", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        import anyio

        queries = list(dict.fromkeys(query.strip() for query in args.queries))
        found: list[list[dict[str, str]]] = [[] for _ in queries]

        async def ask(position: int, query: str) -> None:
            found[position] = await self._ask(query)

        try:
            async with anyio.create_task_group() as group:
                for position, query in enumerate(queries):
                    group.start_soon(ask, position, query)
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return _answer(found)

    async def _ask(self, query: str) -> list[dict[str, str]]:
        from urllib.parse import urlencode

        from dsh_acp.tools import fetching

        separator = "&" if "?" in self._service else "?"
        url = f"{self._service}{separator}{urlencode({'q': query, 'format': 'json'})}"
        # The service is the user's own choice, wherever it is.
        page = await fetching.fetch(fetching.checked(url), lambda host: True)
        try:
            value: Any = jsontext.loads(page.data)
        except jsontext.DecodeError:
            value = None
        results: Any = cast(dict[str, Any], value).get("results") if _is_table(value) else None
        if page.status != 200 or not isinstance(results, list):
            raise ToolError(
                f"the search service answered HTTP {page.status} without results as JSON",
                code="WEB_FAILED",
            )
        return [
            {key: _line(entry.get(key)) for key in ("title", "url", "content", "publishedDate")}
            for entry in cast(list[Any], results)
            if _is_table(entry) and isinstance(entry.get("url"), str)
        ]


def _is_table(value: Any) -> bool:
    return isinstance(value, dict)


def _line(value: Any) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""


def _answer(found: list[list[dict[str, str]]]) -> Outcome:
    merged: dict[str, dict[str, str]] = {}
    for rank in range(max(map(len, found), default=0)):
        for results in found:
            if rank < len(results):
                merged.setdefault(results[rank]["url"], results[rank])
    sources = list(merged.values())[:MAX_SOURCES]
    parts: list[str] = []
    if sources:
        parts.append("\n".join(["Sources:", *map(_source, sources)]))
    else:
        parts.append("No results found.")
    truncated = len(merged) > len(sources)
    if truncated:
        parts.append(f"(Showing the first {len(sources)} sources. Refine the query for more.)")
    parts.append(_CITE)
    shown = [{"title": source["title"], "url": source["url"]} for source in sources]
    return text_outcome("\n\n".join(parts), {"sources": shown, "truncated": truncated})


def _source(source: dict[str, str]) -> str:
    line = f"- [{source['title'] or _host(source['url'])}]({source['url']})"
    if source["content"]:
        line += f" — {source['content'][:500]}"
    return f"{line} ({source['publishedDate']})" if source["publishedDate"] else line
