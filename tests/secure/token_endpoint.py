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
    """Answers `POST /token` until it is closed. `issued`: how many tokens."""

    def __init__(self, certificates: Certificates, lifetime_s: float) -> None:
        self.issued = 0
        endpoint = self
        login = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers["Authorization"] != f"Basic {login}":
                    self.send_response(401)
                    self.end_headers()
                    return
                endpoint.issued += 1
                body = json.dumps(
                    {"access_token": _token(lifetime_s), "expires_in": lifetime_s}
                ).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificates.pem("server"), certificates.key("server"))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://localhost:{self._server.server_address[1]}/token"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _token(lifetime_s: float) -> str:
    now = time.time()
    claims = {"sub": CLIENT, "iat": now, "exp": now + lifetime_s}
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."
