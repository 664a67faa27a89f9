"""Gives Kafka clients OAuth tokens, each until shortly before it expires."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from typing import Any, Final, NamedTuple

from aiokafka.abc import AbstractTokenProvider

from headstart.connections.kafka_connections import NoToken
from headstart.connections.kafka_security import KafkaSecurity, variable
from headstart.connections.secret import UnusableSecurity
from headstart.connections.tls import loaded_context

_TIMEOUT_S: Final = 10.0
_SPARE_S: Final = 30.0
"""A token that expires within this is replaced."""
_SERVER_ERRORS: Final = 500
"""The lowest status of HTTP that says that the endpoint has failed, not the request."""


class Token(NamedTuple):
    """A token for Kafka, and for how long it is valid."""

    text: str
    lifetime_s: float


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """Gives aiokafka a token at each connection; keeps one until shortly before it expires.

    Brokers end a connection when its token expires; the next connection asks again.
    """

    def __init__(self, security: KafkaSecurity, fetch: Callable[[KafkaSecurity], Token]) -> None:
        """`fetch`: returns a new token, and may block; it raises `NoToken`."""
        self._security, self._fetch = security, fetch
        self._token, self._until = "", 0.0

    async def token(self) -> str:
        """Return a token. Raises `NoToken`."""
        if time.monotonic() >= self._until:
            self._token, lifetime_s = await asyncio.to_thread(self._fetch, self._security.current())
            self._until = time.monotonic() + max(0.0, min(lifetime_s - _SPARE_S, lifetime_s * 0.8))
        return self._token

    def forget(self) -> None:
        """Have the next connection fetch a token."""
        self._until = 0.0


def fetch_by_credentials(security: KafkaSecurity) -> Token:
    """Return a token by client credentials (RFC 6749, section 4.4). Raises `NoToken`.

    `security` names endpoint, client and scope. The secret is read for each token.
    """
    try:
        answer = _ask(security)
        return Token(str(answer["access_token"]), float(answer.get("expires_in", 60)))
    except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it holds the connection
        raise NoToken(_reason(security, error), _remedy(error)) from None


def _ask(security: KafkaSecurity) -> dict[str, Any]:
    """Return the endpoint's answer."""
    secret = security.client_secret.read()
    form = {"grant_type": "client_credentials"}
    if security.scope:
        form["scope"] = security.scope
    login = f"{urllib.parse.quote(security.client_id)}:{urllib.parse.quote(secret)}"
    request = urllib.request.Request(
        security.token_url,
        urllib.parse.urlencode(form).encode(),
        {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"},
    )
    tls = urllib.request.HTTPSHandler(context=_context(security))
    opener = urllib.request.build_opener(tls, _NoRedirections)
    with opener.open(request, timeout=_TIMEOUT_S) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


class _NoRedirections(urllib.request.HTTPRedirectHandler):
    """Makes a redirection an error: urllib would send the client's login along, to any host."""

    def redirect_request(self, *_given: Any) -> None:
        """Return no request, so that `HTTPError` is raised."""


def _context(security: KafkaSecurity) -> ssl.SSLContext | None:
    """Return the context for an https endpoint, which a private CA may have signed, too."""
    if not security.token_url.startswith("https://"):
        return None
    context = ssl.create_default_context()
    if security.ca:
        loaded_context(security)  # names an unusable file
        context.load_verify_locations(security.ca)
    return context


def _remedy(error: Exception) -> str:
    url, login = (variable(f"oauth_{each}") for each in ("token_url", "client_id"))
    if isinstance(error, urllib.error.HTTPError) and error.code < _SERVER_ERRORS:
        return f"correct {login}, {variable('oauth_client_secret')} or {url}"
    if isinstance(error, UnusableSecurity):
        return "correct this setting"
    return f"it is tried again; start the endpoint, or correct {url}"


def _reason(security: KafkaSecurity, error: Exception) -> str:
    """Return why there is no token, without the answer, which may contain it."""
    host = urllib.parse.urlsplit(security.token_url).hostname
    if isinstance(error, urllib.error.HTTPError):
        return f"token endpoint {host}: it answered {error.code}"
    if isinstance(error, UnusableSecurity | urllib.error.URLError):
        return f"token endpoint {host}: {error}"
    return f"token endpoint {host}: no usable answer ({type(error).__name__})"
