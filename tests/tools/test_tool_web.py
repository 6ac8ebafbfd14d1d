"""Fetching and searching, against real servers on this machine."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
import gzip
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import json
from pathlib import Path
import ssl
import threading
from typing import Any
from urllib.parse import parse_qs, urlsplit

from hypothesis import given, settings, strategies as st
import pytest
from workbench import Workbench

from dsh_acp.tools import addresses, fetching, pages
from dsh_acp.tools.web import MAX_CHARS, WebFetch, WebSearch

Answer = tuple[int, dict[str, str], bytes]


class Site:
    """A server whose pages are functions of the path; it remembers what was asked."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.pages: dict[str, Answer | Callable[[str], Answer]] = {}
        self.asked: list[tuple[str, str]] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append((self.path, self.headers["Host"]))
                found = site.pages.get(urlsplit(self.path).path, (404, {}, b"nothing here"))
                status, headers, body = found(self.path) if callable(found) else found
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


@pytest.fixture
def web(bench: Workbench) -> Workbench:
    """Where this machine may be fetched."""
    bench.tools["web_fetch"] = WebFetch(("127.0.0.1",))
    return bench


def html(body: str, **headers: str) -> Answer:
    return 200, {"Content-Type": "text/html", **headers}, body.encode()


# ---------------------------------------------------------------- pages


async def test_a_page_comes_as_markdown(web: Workbench, site: Site) -> None:
    site.pages["/a/doc"] = html(
        "<html><head><title>T</title><style>p {}</style></head><body><script>x()</script>"
        "<h1>Doors</h1><!-- hidden --><p>Open <a href='../b'>them</a> &amp; go.</p>"
        "<ul><li>one</li><li>two</li></ul><pre><code>if x:\n    y()</code></pre>"
        "<table><tr><th>a</th></tr><tr><td>1</td></tr></table>"
        "<img src='data:image/png;base64,AAAA' alt='pixel'></body></html>"
    )
    outcome = await web.call("web_fetch", url=f"{site.url}/a/doc")
    (block,) = outcome.content
    text = block.text  # type: ignore[union-attr]
    assert text.startswith(f"Fetched {site.url}/a/doc (HTTP 200)\n\n# Doors\n\n")
    assert f"Open [them]({site.url}/b) & go." in text
    assert "- one\n- two" in text and "```\nif x:\n    y()\n```" in text and "| a |" in text
    for unseen in ("x()", "hidden", "p {}", "base64"):
        assert unseen not in text
    assert outcome.meta == {"url": f"{site.url}/a/doc", "statusCode": 200, "truncated": False}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ((200, {"Content-Type": "application/json"}, b'{"a": 1}'), '{"a": 1}'),
        ((200, {"Content-Type": "text/plain; charset=latin-1"}, b"caf\xe9"), "café"),
        ((200, {"Content-Type": "text/html"}, b"<meta charset='gbk'>\xc4\xe3"), "你"),
        ((200, {"Content-Type": "text/html; charset=nonsense"}, b"<p>\xff"), "\ufffd"),
        ((200, {}, b"plain"), "plain"),
        (
            (200, {"Content-Type": "text/plain", "Content-Encoding": "gzip"}, gzip.compress(b"z")),
            "z",
        ),
    ],
)
async def test_text_is_decoded_as_it_says(
    web: Workbench, site: Site, answer: Answer, text: str
) -> None:
    site.pages["/"] = answer
    assert (await web.text("web_fetch", url=site.url)).endswith(f"(HTTP 200)\n\n{text}")


async def test_an_error_page_is_a_page(web: Workbench, site: Site) -> None:
    assert await web.text("web_fetch", url=f"{site.url}/x") == (
        f"Fetched {site.url}/x (HTTP 404)\n\nnothing here"
    )


async def test_what_is_no_text_is_refused(web: Workbench, site: Site) -> None:
    site.pages["/"] = (200, {"Content-Type": "application/pdf"}, b"%PDF")
    refusal = await web.refusal("web_fetch", url=site.url)
    assert refusal.code == "WEB_NOT_TEXT" and "application/pdf" in refusal.message


async def test_a_long_page_is_cut_and_says_so(web: Workbench, site: Site) -> None:
    site.pages["/"] = (200, {"Content-Type": "text/plain"}, b"x" * 300_000)
    text = await web.text("web_fetch", url=site.url)
    assert len(text) == MAX_CHARS
    assert text.endswith(
        "x\n\n(Content truncated. Fetch a more specific URL or section for the full text.)"
    )


async def test_a_body_without_end_is_read_up_to_its_limit(web: Workbench, site: Site) -> None:
    packed = gzip.compress(b"x" * (fetching.MAX_BYTES * 4))
    site.pages["/"] = (200, {"Content-Type": "text/plain", "Content-Encoding": "gzip"}, packed)
    outcome = await web.call("web_fetch", url=site.url)
    assert outcome.meta is not None and outcome.meta["truncated"] is True


def test_html_that_no_parser_takes_stays_html() -> None:
    assert pages.markdown("</)r<![<-", "http://e.org/") == "</)r<![<-"


def test_html_that_is_nested_without_end_stays_html() -> None:
    deep = "<div>" * 5000 + "x"
    assert pages.markdown(deep, "http://x/") == deep


@settings(max_examples=60)
@given(st.text(st.sampled_from("<>/ab =\"'&;!-[]()\n\0pre"), max_size=60))
def test_any_html_becomes_text(source: str) -> None:
    assert isinstance(pages.markdown(source, "http://x/"), str)


# ---------------------------------------------------------------- where a fetch may go


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:93.184.216.34", True),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
        ("nonsense", False),
    ],
)
def test_only_addresses_of_the_internet_are_public(address: str, public: bool) -> None:
    assert addresses.is_public(address) is public


@pytest.mark.parametrize(
    ("host", "near"),
    [
        ("localhost", True),
        ("LOCALHOST.", True),
        ("db.internal", True),
        ("printer.local", True),
        ("[::1]", True),
        ("127.1", True),
        ("0177.0.0.1", True),
        ("2130706433", True),
        ("0x7f000001", True),
        ("example.com", False),
        ("1.1.1.1", False),
        ("3com.com", False),
    ],
)
def test_a_host_nearby_is_known_by_its_spelling(host: str, near: bool) -> None:
    assert addresses.is_nearby(host) is near


@pytest.mark.parametrize("spelling", ["127.0.0.1", "localhost", "127.1", "2130706433"])
async def test_this_machine_is_not_fetched_unasked(
    bench: Workbench, site: Site, spelling: str
) -> None:
    refusal = await bench.refusal("web_fetch", url=f"http://{spelling}:{site.port}/")
    assert refusal.code == "WEB_REFUSED" and "web_private_hosts" in refusal.message
    assert not site.asked


async def test_an_address_that_the_person_allowed_is_fetched(bench: Workbench, site: Site) -> None:
    bench.is_approved = True
    site.pages["/"] = html("here")
    assert "here" in await bench.text("web_fetch", url=f"http://localhost:{site.port}/")
    assert site.asked == [("/", f"localhost:{site.port}")]


async def test_a_redirect_does_not_lead_further_than_was_allowed(
    bench: Workbench, site: Site
) -> None:
    bench.is_approved = True
    site.pages["/"] = (302, {"Location": f"http://127.0.0.2:{site.port}/inside"}, b"")
    refusal = await bench.refusal("web_fetch", url=site.url)
    assert refusal.code == "WEB_REFUSED" and [path for path, _ in site.asked] == ["/"]


async def test_redirects_are_followed_to_their_end(web: Workbench, site: Site) -> None:
    site.pages["/"] = (301, {"Location": "/next?q=1"}, b"")
    site.pages["/next"] = html("arrived")
    text = await web.text("web_fetch", url=site.url)
    assert text == f"Fetched {site.url}/next?q=1 (HTTP 200)\n\narrived"


@pytest.mark.parametrize(
    ("location", "words"),
    [("/", "more than 5 redirects"), ("file:///etc/passwd", "only http and https")],
)
async def test_redirects_have_their_limits(
    web: Workbench, site: Site, location: str, words: str
) -> None:
    site.pages["/"] = (302, {"Location": location}, b"")
    assert words in (await web.refusal("web_fetch", url=site.url)).message


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("file:///etc/passwd", "only http and https"),
        ("ftp://example.com/", "only http and https"),
        ("http://", "is not a URL"),
        ("http://a b/", "is not a URL"),
        ("http://x:99999/", "is not a URL"),
        ("http://[::1/", "is not a URL"),
        ("http://user:secret@example.com/", "user name or password"),
        ("http://example.com/" + "x" * 2048, "longer than 2048"),
    ],
)
async def test_what_is_no_address_is_refused(web: Workbench, url: str, words: str) -> None:
    refusal = await web.refusal("web_fetch", url=url)
    assert words in refusal.message and refusal.code == "WEB_INVALID_URL"
    assert "secret" not in refusal.message


async def test_nobody_listening_is_said_in_words(web: Workbench, site: Site) -> None:
    port = site.port
    site.close()
    refusal = await web.refusal("web_fetch", url=f"http://127.0.0.1:{port}/")
    assert refusal.code == "WEB_FAILED" and str(port) in refusal.message


@pytest.mark.parametrize(
    ("url", "scope", "asks"),
    [
        ("https://docs.example.com/a?b", "docs.example.com", None),
        ("example.com/x", "example.com", None),
        ("http://localhost:3000", "localhost", "localhost is this machine or on its network"),
        ("http://[::1/", "", None),
    ],
)
def test_the_question_names_the_host(
    bench: Workbench, url: str, scope: str, asks: str | None
) -> None:
    tool = bench.tools["web_fetch"]
    intent = tool.intent(tool.parse(json.dumps({"url": url})), bench.cwd)
    assert (intent.effect, intent.scope, intent.reason) == ("fetch", scope, asks)


# ---------------------------------------------------------------- searching


def results(*entries: dict[str, Any]) -> Answer:
    return 200, {"Content-Type": "application/json"}, json.dumps({"results": entries}).encode()


def test_there_is_no_search_without_a_service(bench: Workbench) -> None:
    assert "web_search" not in bench.tools


async def test_queries_are_merged_by_rank(bench: Workbench, site: Site) -> None:
    def search(path: str) -> Answer:
        query = parse_qs(urlsplit(path).query)["q"][0]
        return results(
            {"title": f"{query} 1", "url": f"https://{query}/1", "content": "a\n  snippet"},
            {"title": "", "url": "https://both/", "publishedDate": "2026-01-02"},
            {"title": "no address"},
        )

    site.pages["/search"] = search
    bench.tools["web_search"] = WebSearch(f"{site.url}/search?lang=en")
    assert await bench.text("web_search", queries=["x", "y", " x "]) == (
        "Sources:\n- [x 1](https://x/1) — a snippet\n- [y 1](https://y/1) — a snippet\n"
        "- [both](https://both/) (2026-01-02)\n\n"
        "Cite the relevant URLs above as markdown links in your answer."
    )
    assert len(site.asked) == 2


async def test_many_results_are_cut_and_none_is_said(bench: Workbench, site: Site) -> None:
    bench.tools["web_search"] = WebSearch(site.url)
    site.pages["/"] = results(*[{"title": f"{n}", "url": f"https://{n}/"} for n in range(20)])
    text = await bench.text("web_search", queries=["x"])
    assert text.count("\n- ") == 8 and "(Showing the first 8 sources." in text
    site.pages["/"] = results()
    assert (await bench.text("web_search", queries=["x"])).startswith("No results found.\n\n")


@pytest.mark.parametrize("answer", [(500, {}, b"{}"), (200, {}, b"<html>"), (200, {}, b"[]")])
async def test_a_service_that_fails_is_an_error(
    bench: Workbench, site: Site, answer: Answer
) -> None:
    bench.tools["web_search"] = WebSearch(site.url)
    site.pages["/"] = answer
    assert (await bench.refusal("web_search", queries=["x", "y"])).code == "WEB_FAILED"


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        ([], "queries must contain at least one query"),
        (list("abcde"), "queries must contain at most 4 queries"),
        ([" "], "each query must be a non-empty string"),
    ],
)
async def test_odd_queries_are_refused(bench: Workbench, queries: list[str], message: str) -> None:
    bench.tools["web_search"] = WebSearch("http://127.0.0.1:9/")
    assert (await bench.refusal("web_search", queries=queries)).message == message


def test_cards_name_what_is_looked_for(bench: Workbench) -> None:
    card = bench.call_card("web_fetch", url="https://example.com")
    assert (card.title, card.kind) == ("https://example.com", "fetch")
    bench.tools["web_search"] = WebSearch("http://x/")
    assert bench.call_card("web_search", queries=["a", "b"]).title == "a, b"


# ---------------------------------------------------------------- TLS


def certificate(folder: Path, name: str) -> Path:
    """A certificate for `name` that is its own authority, with its key, in one file."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{name}.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.mark.parametrize(("name", "works"), [("localhost", True), ("elsewhere.example", False)])
async def test_the_certificate_must_be_the_names_although_an_address_is_called(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, works: bool
) -> None:
    pem = certificate(tmp_path, name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    bench.is_approved = True
    site = Site(context)
    try:
        site.pages["/"] = html("safe")
        url = f"https://localhost:{site.port}/"
        if works:
            assert "safe" in await bench.text("web_fetch", url=url)
        else:
            refusal = await bench.refusal("web_fetch", url=url)
            assert refusal.code == "WEB_FAILED" and not site.asked
    finally:
        site.close()
