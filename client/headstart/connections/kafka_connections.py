"""Makes aiokafka's arguments from the description of a connection, at every place that connects.

aiokafka reports a failed connection as "Unable to bootstrap"; here each one's error is kept, so
that messages can name the cause (`kafka_errors`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import aiokafka.client
import aiokafka.conn
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError, SaslAuthenticationFailed

from headstart.connections.kafka_security import MSK_IAM, OAUTH, KafkaSecurity
from headstart.connections.own_security import own_security
from headstart.connections.secret import UnusableSecurity
from headstart.connections.tls import ReloadingContext


class FailedConnection(NamedTuple):
    """Why the last connection to an address failed, and how it was attempted."""

    error: BaseException
    protocol: str
    mechanism: str
    certificate: str
    """PEM file of the client's certificate; empty: it has none."""


class NoToken(KafkaConnectionError):  # type: ignore[misc]
    """There is no token; the connection is tried again. `remedy`: what to correct."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(why)
        self.why, self.remedy = why, remedy


_failed: dict[tuple[str, int], FailedConnection] = {}


class _ReadAgain(str):
    """A password; user and password are read again for each connection. As a string it is empty."""

    security: KafkaSecurity

    def __new__(cls, security: KafkaSecurity) -> _ReadAgain:
        found = super().__new__(cls, "")
        found.security = security
        return found

    def login(self) -> dict[str, str]:
        """Return user and password as aiokafka takes them. Raises `KafkaConnectionError`."""
        now = self.security.current()
        try:
            password = now.password.read()
        except UnusableSecurity as error:  # a file that is being replaced: try again
            raise KafkaConnectionError(str(error)) from None
        return {"sasl_plain_username": now.username, "sasl_plain_password": password}


def client_options(security: KafkaSecurity | None = None) -> dict[str, Any]:
    """Return the arguments that an aiokafka client needs besides its brokers; none for plain text.

    `security`: default: the process's own. Raises `UnusableSecurity`.
    """
    _install()
    security = (own_security() if security is None else security).current()
    if not (security.uses_tls or security.uses_login):
        return {}
    options: dict[str, Any] = {"security_protocol": security.protocol}
    if security.uses_tls:
        options["ssl_context"] = ReloadingContext(security)
    if security.mechanism in (OAUTH, MSK_IAM):
        provider = _token_provider(security)
        options |= {"sasl_mechanism": OAUTH, "sasl_oauth_token_provider": provider}
    elif security.uses_login:
        security.password.read()  # names an unusable file now
        options |= {
            "sasl_mechanism": security.mechanism,
            "sasl_plain_username": security.username,
            "sasl_plain_password": _ReadAgain(security),
        }
    return options


def _token_provider(security: KafkaSecurity) -> Any:
    from headstart.connections.oauth import TokenProvider, fetch_by_credentials

    if security.mechanism == OAUTH:
        return TokenProvider(security, fetch_by_credentials)
    try:
        from headstart.connections.msk_iam import fetch_signed
    except ImportError as error:
        raise UnusableSecurity(
            f"{MSK_IAM} needs the AWS signer ({error}): pip install aws-msk-iam-sasl-signer-python"
        ) from None
    return TokenProvider(security, fetch_signed)


def new_producer(
    kafka: str, security: KafkaSecurity | None = None, **settings: Any
) -> AIOKafkaProducer:
    """Return a producer that is not started. Raises `UnusableSecurity`."""
    return AIOKafkaProducer(bootstrap_servers=kafka, **client_options(security), **settings)


def new_consumer(
    kafka: str, security: KafkaSecurity | None = None, **settings: Any
) -> AIOKafkaConsumer:
    """Return a consumer without topics that is not started. Raises `UnusableSecurity`."""
    return AIOKafkaConsumer(bootstrap_servers=kafka, **client_options(security), **settings)


async def open_connection(host: str, port: int, **more: Any) -> Any:
    """Return one open connection to a broker, with the process's own security.

    Raises aiokafka's `KafkaError`, `OSError`, `TimeoutError`, and `UnusableSecurity`.
    """
    return await _connect(host, port, **{**client_options(), **more})


def failed_connection(kafka: str) -> FailedConnection | None:
    """Return why the last connection to one of these addresses failed; None if it did not."""
    found = (_failed.get(address) for address in _addresses(kafka))
    return next((each for each in found if each is not None), None)


def _addresses(kafka: str) -> Iterator[tuple[str, int]]:
    for server in kafka.split(","):
        host, _, port = server.strip().rpartition(":")
        if port.isdecimal():
            yield host.strip("[]"), int(port)


async def _connect(host: str, port: int, **options: Any) -> Any:
    password = options.get("sasl_plain_password")
    try:
        if isinstance(password, _ReadAgain):
            options |= password.login()
        found = await _create_conn(host, port, **options)
    except BaseException as error:
        if isinstance(error, SaslAuthenticationFailed):
            _forget_token(options.get("sasl_oauth_token_provider"))
        _failed[host, port] = FailedConnection(
            error.with_traceback(None),
            options.get("security_protocol") or "PLAINTEXT",
            options.get("sasl_mechanism") or "",
            _certificate(options.get("ssl_context")),
        )
        raise
    _failed.pop((host, port), None)
    return found


def _forget_token(provider: Any) -> None:
    """Have the next connection use a new token: the broker may have refused this one."""
    if provider is not None:
        provider.forget()


def _certificate(context: Any) -> str:
    return context._security.cert if isinstance(context, ReloadingContext) else ""


_create_conn = aiokafka.conn.create_conn


def _install() -> None:
    """Have aiokafka's clients connect by `_connect`. Idempotent."""
    aiokafka.client.create_conn = _connect
