"""Pages as text for the model: HTML becomes Markdown. Imported at the first fetch."""

import codecs
import re
from typing import Any, Final, cast
from urllib.parse import urljoin

import bs4
from markdownify import MarkdownConverter

from dsh_acp.errors import ToolError
from dsh_acp.tools.fetching import Page

_UNSEEN: Final = "script style noscript template svg iframe object canvas head link meta".split()
_HTML: Final = ("text/html", "application/xhtml+xml")
_TEXTS: Final = re.compile(
    r"text/.*|application/(?:.*\+)?(?:json|xml|yaml|x-yaml|toml|javascript|x-sh|x-ndjson)"
)
_META: Final = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?([\w-]+)", re.IGNORECASE)
_SNIFFED: Final = 2048


def text_of(page: Page) -> str:
    """The page's text.

    Raises:
        ToolError: `WEB_NOT_TEXT`.
    """
    sniffed = page.media_type or ("text/html" if b"<html" in page.data[:_SNIFFED] else "")
    if sniffed in _HTML:
        return markdown(_decoded(page), page.url)
    if _TEXTS.fullmatch(sniffed) or (not sniffed and b"\0" not in page.data):
        return _decoded(page)
    raise ToolError(
        f"{page.url} is {sniffed or 'binary data'}, which cannot be shown as text",
        code="WEB_NOT_TEXT",
    )


def _decoded(page: Page) -> str:
    found = _META.search(page.data[:_SNIFFED]) if page.media_type in _HTML else None
    for name in (page.charset, found[1].decode() if found else None):
        if name:
            try:
                return page.data.decode(codecs.lookup(name).name, "replace")
            except (LookupError, ValueError):
                continue
    return page.data.decode("utf-8", "replace").removeprefix("\ufeff")


def markdown(html: str, base: str) -> str:
    """HTML as Markdown, links made absolute; the HTML itself where it cannot be parsed."""
    try:
        soup = bs4.BeautifulSoup(html, "html.parser")
        for tag in soup.find_all(_UNSEEN):
            tag.decompose()
        for comment in soup.find_all(string=lambda text: isinstance(text, bs4.Comment)):
            comment.extract()
        for name, attribute in (("a", "href"), ("img", "src")):
            for tag in soup.find_all(name):
                _absolute(tag, attribute, base)
        converter: Any = MarkdownConverter(heading_style="ATX", bullets="-")
        text = cast(str, converter.convert_soup(soup))
    except (RecursionError, bs4.ParserRejectedMarkup):
        return html
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", text)).strip()


def _absolute(tag: bs4.Tag, attribute: str, base: str) -> None:
    target = tag.get(attribute)
    if not isinstance(target, str):
        return
    if target.startswith("data:"):
        del tag[attribute]
        return
    try:
        tag[attribute] = urljoin(base, target)
    except ValueError:
        del tag[attribute]
