from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import json
import threading

import pytest


class ModelList:
    """An endpoint that lists its models to whoever has the key."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1"
        self.models = ["m", "n"]
        self.paths: list[str] = []


@pytest.fixture
def model_list() -> Iterator[ModelList]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            endpoint.paths.append(self.path)
            given = (self.headers["x-api-key"], self.headers["authorization"])
            allowed = given in (("sk-right", None), (None, "Bearer sk-right"))
            body = json.dumps({"data": [{"id": name} for name in endpoint.models]}).encode()
            self.send_response(200 if allowed else 401)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        endpoint = ModelList(server.server_port)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield endpoint
        server.shutdown()
        thread.join()
