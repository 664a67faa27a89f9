"""Reads a Kafka `client.properties` with the keys of librdkafka or of the Java client.

Keys that only tune a client are ignored. Unknown keys of security are refused, because a
connection without them would be less secure than the file asks for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from headstart.connections.kafka_security import SECRETS, KafkaSecurity, described_security
from headstart.connections.secret import Secret, UnusableSecurity

_KEYS: Final = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_username",
    "sasl.password": "sasl_password",
    "ssl.ca.location": "ssl_ca",
    "ssl.truststore.location": "ssl_ca",
    "ssl.certificate.location": "ssl_cert",
    "ssl.keystore.location": "ssl_cert",
    "ssl.key.location": "ssl_key",
    "ssl.key.password": "ssl_key_password",
    "sasl.oauthbearer.token.endpoint.url": "oauth_token_url",
    "sasl.oauthbearer.client.id": "oauth_client_id",
    "sasl.oauthbearer.client.credentials.client.id": "oauth_client_id",
    "sasl.oauthbearer.client.secret": "oauth_client_secret",
    "sasl.oauthbearer.client.credentials.client.secret": "oauth_client_secret",
    "sasl.oauthbearer.scope": "oauth_scope",
}
_BROKERS: Final = ("bootstrap.servers", "metadata.broker.list")
_JAAS: Final = "sasl.jaas.config"
_IN_JAAS: Final = {
    "username": "sasl_username",
    "password": "sasl_password",
    "clientId": "oauth_client_id",
    "clientSecret": "oauth_client_secret",
    "scope": "oauth_scope",
}
_OF_OTHERS: Final = ("awsProfileName", "awsRoleArn")
"""Words of MSK's login module that would log in as another identity."""
_JAAS_WORD: Final = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s;"']+))""")
_INLINE: Final = {
    "ssl.keystore.key": "ssl.key.location",
    "ssl.keystore.certificate.chain": "ssl.certificate.location",
    "ssl.truststore.certificates": "ssl.ca.location",
    "ssl.key.pem": "ssl.key.location",
    "ssl.certificate.pem": "ssl.certificate.location",
    "ssl.ca.pem": "ssl.ca.location",
}
"""Keys with PEM text as value, and the keys that name a file with it: OpenSSL reads files."""
_STORES: Final = ("ssl.truststore", "ssl.keystore")
_HOST_NAMES: Final = "ssl.endpoint.identification.algorithm"
_UNCHECKED: Final = "enable.ssl.certificate.verification"
_IMPLIED: Final = frozenset(
    {
        "sasl.oauthbearer.method", "sasl.login.callback.handler.class", "sasl.login.class",
        "sasl.client.callback.handler.class", "ssl.protocol", "ssl.enabled.protocols",
        "ssl.truststore.type", "ssl.keystore.type", _HOST_NAMES, _UNCHECKED,
        "sasl.oauthbearer.grant.type", "security.providers",
    }
)  # fmt: skip
"""Other keys of security that such files have, and that say what is done anyway."""


def read_properties(path: Path) -> dict[str, str]:
    """Return the keys and values of a file. Raises `UnusableSecurity`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UnusableSecurity(f"kafka_config {path} cannot be read: {reason}") from None
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        name, separator, value = _split(line)
        if not separator:
            raise UnusableSecurity(f"kafka_config {path}, line {number}: not of the form KEY=VALUE")
        found[name] = value
    if not found:  # as while it is being written: it would mean plain text
        raise UnusableSecurity(f"kafka_config {path} is empty")
    return found


def security_in(path: Path) -> KafkaSecurity:
    """Return the description in a file; its absolute path is the profile's name.

    Relative paths in it are relative to its folder. Raises `UnusableSecurity`.
    """
    path = path.absolute()
    options, secrets = options_in(path)
    found = described_security(options, secrets, str(path))
    return replace(found, again=partial(security_in, path))


def options_in(path: Path) -> tuple[dict[str, str], dict[str, Secret]]:
    """Return the options in a file, and its secrets, which are read there at every use.

    Raises `UnusableSecurity`.
    """
    path = path.absolute()
    properties = read_properties(path)
    for name in properties:
        _refuse_unsupported(path, name, properties)
    options = _options(properties)
    for name in ("ssl_ca", "ssl_cert", "ssl_key"):
        if name in options:
            options[name] = str(path.parent / options[name])
    secrets = {name: Secret(file=str(path), key=name) for name in SECRETS if options.pop(name, "")}
    return options, secrets


def brokers_in(path: Path) -> str:
    """Return the broker addresses in a file, or an empty string. Raises `UnusableSecurity`."""
    properties = read_properties(path)
    return next((properties[name] for name in _BROKERS if properties.get(name)), "")


def secret_in(path: Path, option: str) -> str:
    """Return a secret of a file by its option's name. Raises `UnusableSecurity`."""
    found = _options(read_properties(path)).get(option)
    if not found:
        raise UnusableSecurity(f"kafka_config {path} has no {option} any more")
    return found


def _options(properties: Mapping[str, str]) -> dict[str, str]:
    found = {_KEYS[name]: value for name, value in properties.items() if name in _KEYS and value}
    for word in _JAAS_WORD.finditer(properties.get(_JAAS, "")):
        if word[1] in _OF_OTHERS:
            raise UnusableSecurity(
                f"{_JAAS}: {word[1]} is not supported; name a profile, which may have a role, in "
                "AWS_PROFILE"
            )
        if option := _IN_JAAS.get(word[1]):
            quoted = re.sub(r"\\(.)", r"\1", word[2]) if word[2] is not None else None
            found.setdefault(option, quoted or word[3] or word[4] or "")
    if properties.get(_HOST_NAMES, "https").lower() in ("", "none"):
        found["ssl_check_hostname"] = "false"
    return found


def _refuse_unsupported(path: Path, name: str, properties: Mapping[str, str]) -> None:
    where = f"kafka_config {path}: {name}"
    store = next((each for each in _STORES if name == f"{each}.location"), None)
    if store and properties.get(f"{store}.type", "JKS").upper() != "PEM":
        raise UnusableSecurity(
            f"{where} is not PEM: export it (keytool -exportcert -rfc, openssl pkcs12), and set "
            f"{store}.type=PEM"
        )
    if name == _UNCHECKED and properties[name].lower() != "true":
        raise UnusableSecurity(f"{where}=false is refused: name the CA in ssl.ca.location instead")
    if name in _INLINE:
        raise UnusableSecurity(
            f"{where} is PEM text, and only files are read: write it to a file that none but this "
            f"user can read, with its line breaks, and name that in {_INLINE[name]}"
        )
    is_security = name.startswith(("ssl.", "sasl.", "security."))
    if is_security and name not in _KEYS and name not in _IMPLIED and name != _JAAS:
        raise UnusableSecurity(f"{where} is not supported; remove it if it is not needed")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines that are neither empty nor comments, with their numbers; `\\` continues one."""
    kept, begun = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not kept and (not stripped or stripped[0] in "#!"):
            continue
        begun = begun if kept else number
        if stripped.endswith("\\") and not stripped.endswith("\\\\"):
            kept += stripped[:-1]
            continue
        yield begun, kept + stripped
        kept = ""
    if kept:
        yield begun, kept


def _split(line: str) -> tuple[str, str, str]:
    """Return key, separator and value; the first `=` or `:` separates."""
    at = min((line.find(mark) for mark in "=:" if mark in line), default=-1)
    if at < 0:
        return line, "", ""
    return line[:at].strip(), line[at], line[at + 1 :].strip()
