"""An OAuth token endpoint over TLS, whose tokens Kafka accepts unsigned, for tests only."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.secure.certificates import Certificates

CLIENT, SECRET = "executor", "canary-oauth-secret"


class TokenEndpoint:
    """Answers `POST /token` until it is closed. `issued`: how many tokens.

    `failing`: it answers 503, as while it is being restarted. `refused`: answers to wrong secrets.
    """

    def __init__(self, certificates: Certificates, lifetime_s: float) -> None:
        self.issued = self.refused = self.failed = 0
        self.failing = False
        self._lifetime_s = lifetime_s
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificates.pem("server"), certificates.key("server"))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://localhost:{self._server.server_address[1]}/token"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, login: str | None) -> tuple[int, bytes]:
        """Return status and body for a request with this header `Authorization`."""
        if self.failing:
            self.failed += 1
            return 503, b""
        if login != f"Basic {base64.b64encode(f'{CLIENT}:{SECRET}'.encode()).decode()}":
            self.refused += 1
            return 401, b""
        self.issued += 1
        body = {"access_token": _token(self._lifetime_s), "expires_in": self._lifetime_s}
        return 200, json.dumps(body).encode()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(endpoint: TokenEndpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            status, body = endpoint.answer(self.headers["Authorization"])
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _token(lifetime_s: float) -> str:
    now = time.time()
    claims = {"sub": CLIENT, "iat": now, "exp": now + lifetime_s}
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."
