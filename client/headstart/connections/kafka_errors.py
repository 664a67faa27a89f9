"""Explains why a broker cannot be used: certificates, logins, protocols, ACLs. Pure."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from typing import Final

from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailedError,
    UnsupportedSaslMechanismError,
)

from headstart.connections.certificate_validity import is_expired
from headstart.connections.kafka_connections import (
    FailedConnection,
    NoToken,
    failed_connection,
)
from headstart.connections.kafka_security import (
    MSK_IAM,
    OAUTH,
    PLAINTEXT,
    PROTOCOLS,
    KafkaSecurity,
    variable,
)
from headstart.connections.own_security import own_security
from headstart.connections.secret import UnusableSecurity
from headstart.connections.trouble import Trouble

_CLOSED: Final = (KafkaConnectionError, ConnectionError, asyncio.IncompleteReadError)


_PROTOCOL: Final = variable("security_protocol")
_CA: Final = variable("ssl_ca")
_CERT: Final = f"{variable('ssl_cert')} and {variable('ssl_key')}"
_DENIED: Final[dict[type[KafkaError], str]] = {
    TopicAuthorizationFailedError: "topic",
    GroupAuthorizationFailedError: "group",
    ClusterAuthorizationFailedError: "cluster",
}
_EXPIRED, _NOT_YET, _HOST, _ADDRESS = 10, 9, 62, 64
"""OpenSSL's codes of a failed verification (x509_vfy.h)."""


def kafka_trouble(kafka: str, cause: BaseException) -> Trouble | None:
    """Return the problem of a connection to `kafka`; None: probably no broker is running.

    `cause`: the error of the client; that of its last connection says more.
    """
    if isinstance(cause, UnusableSecurity):
        return Trouble(str(cause), "correct this setting")
    if denied := denied_trouble(cause):
        return denied
    failed = failed_connection(kafka)
    if failed is None:
        return None
    error = failed.error
    if isinstance(error, ssl.SSLCertVerificationError):
        return _of_certificate(error)
    if isinstance(error, ssl.SSLError):
        return _of_handshake(str(error.reason or error), failed)
    return _of_login(error, failed) or _of_closed(error, failed)


def denied_trouble(error: BaseException) -> Trouble | None:
    """Return the problem of a request that the broker's ACLs refuse; None for other errors."""
    kind = next((name for each, name in _DENIED.items() if isinstance(error, each)), None)
    if kind is None:
        return None
    names = sorted(_names(error.args))
    who = _user()
    return Trouble(
        f"its ACLs refuse {who} the {kind} {', '.join(names)}".rstrip(),
        "add what is missing: `headstart topics acl` prints the ACLs of each process",
    )


def _names(arguments: object) -> set[str]:
    """Return the names in an error's arguments: strings, alone or in collections."""
    if isinstance(arguments, str):
        return {arguments}
    if isinstance(arguments, Iterable):
        return {name for each in arguments for name in _names(each)}
    return set()


def _own() -> KafkaSecurity | None:
    """Return how this process connects; None if that cannot be read."""
    try:
        return own_security().current()
    except UnusableSecurity:
        return None


def _user() -> str:
    security = _own()
    if security is None:
        return "this client"
    if security.mechanism == MSK_IAM:
        return "this AWS identity"
    if security.uses_login:
        return f"the user {security.username or security.client_id}"
    return f"the certificate {security.cert}" if security.cert else "this client"


def _of_certificate(error: ssl.SSLCertVerificationError) -> Trouble:
    if error.verify_code == _EXPIRED:
        return Trouble(
            "the certificate of the broker, or of its CA, has expired",
            "renew it on the broker (and check the clock of this machine)",
        )
    if error.verify_code == _NOT_YET:
        return Trouble("its certificate is not valid yet", "check the clock of this machine")
    if error.verify_code in (_HOST, _ADDRESS):
        return Trouble(
            "its certificate is for another host name",
            "use a name that is in it, or, if the network is trusted, set "
            f"{variable('ssl_check_hostname')}=false",
        )
    return Trouble(
        "its certificate is not signed by a trusted CA", f"name the CA's PEM file in {_CA}"
    )


def _of_handshake(reason: str, failed: FailedConnection) -> Trouble:
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER" in reason or "PACKET_LENGTH" in reason:
        return Trouble(
            f"it does not speak TLS, and {_PROTOCOL} is {failed.protocol}",
            f"use the port of its TLS listener, or set {_PROTOCOL}=PLAINTEXT or SASL_PLAINTEXT",
        )
    if "CERTIFICATE_REQUIRED" in reason or not failed.certificate:
        return _wants_certificate(failed)
    if "EXPIRED" in reason or is_expired(failed.certificate):
        return _expired()
    return Trouble(
        f"it refuses the certificate of this client ({reason})",
        f"use one that a CA of the broker has signed: {_CERT}",
    )


def _wants_certificate(failed: FailedConnection) -> Trouble:
    if is_expired(failed.certificate):
        return _expired()
    if failed.certificate:
        return Trouble(
            "it refuses the certificate of this client",
            f"use one that a CA of the broker has signed, and that has not expired: {_CERT}",
        )
    return Trouble("it wants a certificate of this client", f"name it: {_CERT}")


def _expired() -> Trouble:
    return Trouble("the certificate of this client has expired", f"renew it: {_CERT}")


def _of_login(error: BaseException, failed: FailedConnection) -> Trouble | None:
    if isinstance(error, SaslAuthenticationFailed):
        return _of_refused_login(failed.mechanism)
    if isinstance(error, UnsupportedSaslMechanismError):
        _, _, offered = str(error).partition("Enabled mechanisms are: ")
        return Trouble(
            f"it does not offer the login {failed.mechanism}",
            f"set {variable('sasl_mechanism')} to one that it offers"
            + (f": {offered}" if offered else ""),
        )
    if isinstance(error, IllegalSaslStateError):
        return Trouble(
            "it wants no login at this port",
            f"set {_PROTOCOL} to SSL or PLAINTEXT, or use the port of its SASL listener",
        )
    if isinstance(error, NoToken):
        return Trouble(error.why, error.remedy)
    return None


def _of_refused_login(mechanism: str) -> Trouble:
    """`mechanism`: as the client names it to the broker, which IAM and OAuth have in common."""
    security = _own()
    if mechanism != OAUTH:
        remedy = f"correct {variable('sasl_username')} and {variable('sasl_password')}, or use"
    elif security is not None and security.mechanism == MSK_IAM:
        mechanism = MSK_IAM
        remedy = (
            "allow the AWS identity of this process kafka-cluster:Connect on the cluster, correct "
            f"{variable('aws_region')}, or use"
        )
    else:
        login, scope = variable("oauth_client_id"), variable("oauth_scope")
        remedy = f"correct {login}, {scope} or what the broker expects in a token, or use"
    return Trouble(
        f"it refuses the login by {mechanism}", f"{remedy} another {variable('sasl_mechanism')}"
    )


def _of_closed(error: BaseException, failed: FailedConnection) -> Trouble | None:
    """Return the problem of a connection that was accepted, and closed without an answer."""
    if not isinstance(error, _CLOSED) or isinstance(error, ConnectionRefusedError):
        return None
    if failed.protocol in (PLAINTEXT, "SASL_PLAINTEXT"):
        others = " or ".join(name for name in PROTOCOLS if name not in (PLAINTEXT, failed.protocol))
        return Trouble(
            "it closes the connection without an answer, as a TLS listener, or one that wants a "
            f"login, does ({_PROTOCOL} is {failed.protocol})",
            f"set {_PROTOCOL} to {others}",
        )
    if isinstance(error, KafkaConnectionError):  # after the handshake, as TLS 1.3 does
        return _wants_certificate(failed)
    return _of_handshake("WRONG_VERSION_NUMBER", failed)
