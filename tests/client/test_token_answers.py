"""What a token endpoint may answer instead of a token; without a broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from headstart.connections.kafka_connections import NoToken
from headstart.connections.kafka_security import described_security
from headstart.connections.oauth import fetch_by_credentials


class Endpoint(HTTPServer):
    """Answers each path in another wrong way. `asked`: the paths of all requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append(self.path)
        if self.path == "/garbage":
            self.wfile.write(b"SSH-2.0-server\r\n")
            return
        self.send_response(302 if self.path == "/moved" else 200)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.wfile.write(b'{"access_token": ')

    def do_GET(self) -> None:
        self.server.asked.append(f"{self.path} with {self.headers['Authorization']}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/garbage", "no usable answer .BadStatusLine"),
        ("/interrupted", "no usable answer .IncompleteRead"),
        ("/moved", "it answered 302"),
    ],
)
def test_an_answer_without_a_token_is_named(endpoint: Endpoint, path: str, says: str) -> None:
    """By an error that aiokafka tries again after. The login is sent to no other place."""
    options = {
        "oauth_token_url": f"http://127.0.0.1:{endpoint.server_port}{path}",
        "oauth_client_id": "agent",
        "oauth_client_secret": "canary-secret",
    }
    with pytest.raises(NoToken, match=says):
        fetch_by_credentials(described_security(options))
    assert endpoint.asked == [path]
