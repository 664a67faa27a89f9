"""Describes how Kafka clients connect: protocol, login, certificates. Pure, except for files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headstart.connections.secret import (
    LastUsable,
    Secret,
    UnusableSecurity,
    read_secret_file,
)

PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
OAUTH: Final = "OAUTHBEARER"
MSK_IAM: Final = "AWS_MSK_IAM"
"""OAUTHBEARER to brokers, with tokens signed by AWS credentials; named as in the Java client."""
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTH, MSK_IAM)
SECRETS: Final = ("sasl_password", "ssl_key_password", "oauth_client_secret")
"""Options that are secrets."""
IN_FILES: Final = ("sasl_username", *SECRETS)
"""Options that have another one, with `_file` appended, which names a file with their value."""
_FILES: Final = ("ssl_ca", "ssl_cert", "ssl_key")
OPTIONS: Final = (
    "security_protocol", "sasl_mechanism", "sasl_username", *_FILES, "ssl_check_hostname",
    "oauth_token_url", "oauth_client_id", "oauth_scope", "aws_region",
    *SECRETS, *(f"{name}_file" for name in IN_FILES),
)  # fmt: skip
"""Names of all options. Their variables are HEADSTART_KAFKA_ and the name in capitals."""
PREFIX: Final = "HEADSTART_KAFKA_"


# Without a protocol, none of them may lead to plain text.
_OF_LOGINS: Final = {
    "sasl_mechanism", "sasl_username", "sasl_username_file", "sasl_password", "sasl_password_file",
    "oauth_token_url", "oauth_client_id", "oauth_client_secret", "oauth_client_secret_file",
}  # fmt: skip
_OF_TLS: Final = {"ssl_ca", "ssl_cert", "ssl_key", "ssl_key_password", "ssl_key_password_file"}


def variable(option: str) -> str:
    """Return the environment variable of an option."""
    return f"{PREFIX}{option.upper()}"


@dataclass(frozen=True)
class KafkaSecurity:
    """How to connect to Kafka; immutable, and without secrets in its `repr`.

    Paths are absolute. `profile`: the name by which a spool refers to it, "" for plain text.
    """

    protocol: str = PLAINTEXT
    mechanism: str = ""
    username: str = ""
    password: Secret = field(default_factory=Secret)
    ca: str = ""
    """PEM file of the CAs that sign the brokers' certificates; empty: those of the system."""
    cert: str = ""
    """PEM file of this client's certificate and its chain."""
    key: str = ""
    """PEM file of the certificate's key; empty: it is in `cert`."""
    key_password: Secret = field(default_factory=Secret)
    check_hostname: bool = True
    token_url: str = ""
    client_id: str = ""
    client_secret: Secret = field(default_factory=Secret)
    scope: str = ""
    aws_region: str = ""
    """The region of an MSK cluster, for AWS_MSK_IAM."""
    profile: str = ""
    again: Callable[[], KafkaSecurity] | None = field(default=None, repr=False, compare=False)
    """Reads the description again where it came from; None: it is from no file."""

    def current(self) -> KafkaSecurity:
        """Return the description as its files give it now.

        While they cannot be used, the last one that could be stays in use, with a warning. So it
        does if they name no TLS, or no login, where this one does: they may be half written.
        """
        return self if self.again is None else _last.read(self, self._read_again, self)

    def _read_again(self) -> KafkaSecurity:
        found = self if self.again is None else self.again()
        kept = (found.uses_tls or not self.uses_tls) and (found.uses_login or not self.uses_login)
        if not kept:
            raise UnusableSecurity(
                f"{variable('security_protocol')} would become {found.protocol}, less secure than "
                f"{self.protocol}: restart the process if that is wanted"
            )
        return found

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def uses_login(self) -> bool:
        """Whether the client logs in by SASL."""
        return self.protocol.startswith("SASL")


UNSECURED: Final = KafkaSecurity()
_last: LastUsable[KafkaSecurity, KafkaSecurity] = LastUsable()


def described_security(
    options: Mapping[str, str], secrets: Mapping[str, Secret] | None = None, profile: str = ""
) -> KafkaSecurity:
    """Return the description that `options` give, by the names in `OPTIONS`.

    `secrets`: secrets that are no plain options, by their names in `SECRETS`. Without a protocol,
    any part of a login means SASL_SSL, and of TLS SSL. `profile`: default: one made of protocol,
    mechanism and user. Raises `UnusableSecurity`.
    """
    given = {name: value for name, value in options.items() if value}
    protocol = _protocol(given, {*given, *(secrets or {})})
    if protocol == PLAINTEXT:
        return UNSECURED
    found = {**_secrets(given), **(secrets or {})}
    files = {name: os.path.abspath(given[name]) if name in given else "" for name in _FILES}
    mechanism = _mechanism(protocol, given)
    security = KafkaSecurity(
        protocol,
        mechanism,
        _username(given),
        found.get("sasl_password", Secret()),
        files["ssl_ca"],
        files["ssl_cert"],
        files["ssl_key"],
        found.get("ssl_key_password", Secret()),
        _flag("ssl_check_hostname", given.get("ssl_check_hostname", "true")),
        given.get("oauth_token_url", ""),
        given.get("oauth_client_id", ""),
        found.get("oauth_client_secret", Secret()),
        given.get("oauth_scope", ""),
        _region(given) if mechanism == MSK_IAM else "",
        profile or _profile(protocol, mechanism, given),
    )
    _require_complete(security)
    return security


def _protocol(given: Mapping[str, str], names: Set[str]) -> str:
    """Return the protocol that is named, else the one that options of these names need."""
    named = given.get("security_protocol", "").upper()
    if named:
        return _choice("security_protocol", named, PROTOCOLS)
    if names & _OF_LOGINS:
        return "SASL_SSL"
    return "SSL" if names & _OF_TLS else PLAINTEXT


def _mechanism(protocol: str, given: Mapping[str, str]) -> str:
    if not protocol.startswith("SASL"):
        return ""
    named = given.get("sasl_mechanism", OAUTH if "oauth_token_url" in given else "").upper()
    if not named:
        raise UnusableSecurity(
            f"{variable('sasl_mechanism')} is missing: {protocol} needs {', '.join(MECHANISMS)}"
        )
    return _choice("sasl_mechanism", named, MECHANISMS)


def _region(given: Mapping[str, str]) -> str:
    """Return the region that is named, else that of the AWS SDK's own variables."""
    named = (given.get("aws_region"), *map(os.environ.get, ("AWS_REGION", "AWS_DEFAULT_REGION")))
    return next(filter(None, named), "")


def _choice(option: str, named: str, known: tuple[str, ...]) -> str:
    if named not in known:
        raise UnusableSecurity(f"{variable(option)} must be {', '.join(known)}, not {named!r:.60}")
    return named


def _flag(option: str, named: str) -> bool:
    if named.lower() not in ("true", "false", "1", "0"):
        raise UnusableSecurity(f"{variable(option)} must be true or false, not {named!r:.60}")
    return named.lower() in ("true", "1")


def _secrets(given: Mapping[str, str]) -> dict[str, Secret]:
    """Return the secrets among the options; a value is preferred to a file."""
    found: dict[str, Secret] = {}
    for name in SECRETS:
        if name in given:
            found[name] = Secret(given[name])
        elif path := given.get(f"{name}_file"):
            found[name] = Secret(file=os.path.abspath(path))
    return found


def _username(given: Mapping[str, str]) -> str:
    """Return the user; a value is preferred to a file. Raises `UnusableSecurity`."""
    if path := given.get("sasl_username_file"):
        return given.get("sasl_username") or read_secret_file(Path(path))
    return given.get("sasl_username", "")


def _profile(protocol: str, mechanism: str, given: Mapping[str, str]) -> str:
    names = ("sasl_username", "sasl_username_file", "oauth_client_id", "ssl_cert", "aws_region")
    who = next((given[name] for name in names if name in given), "")
    return "environment:" + ":".join(part for part in (protocol, mechanism, who) if part)


def _require_complete(security: KafkaSecurity) -> None:
    """Raise `UnusableSecurity` if an option is missing that another one needs."""
    needed: dict[str, object] = {}
    if security.mechanism == OAUTH:
        needed = {
            "oauth_token_url": security.token_url,
            "oauth_client_id": security.client_id,
            "oauth_client_secret": security.client_secret,
        }
    elif security.mechanism == MSK_IAM:
        needed = {"aws_region": security.aws_region}
    elif security.uses_login:
        needed = {"sasl_username": security.username, "sasl_password": security.password}
    if security.key and not security.cert:
        needed["ssl_cert"] = security.cert
    for option, value in needed.items():
        if not value:
            also = f" (or {variable(option)}_FILE)" if option in IN_FILES else ""
            why = security.mechanism or "ssl_key"
            raise UnusableSecurity(f"{variable(option)}{also} is missing: {why} needs it")
    if security.token_url and not security.token_url.startswith(("https://", "http://")):
        raise UnusableSecurity(f"{variable('oauth_token_url')} must be an http or https URL")
