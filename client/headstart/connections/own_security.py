"""The security of this process's own Kafka connections, and those that spools name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from headstart.connections.kafka_security import (
    IN_FILES,
    OPTIONS,
    PLAINTEXT,
    PREFIX,
    UNSECURED,
    KafkaSecurity,
    described_security,
    variable,
)
from headstart.connections.properties import (
    brokers_in,
    options_in,
    read_properties,
    security_in,
)
from headstart.connections.secret import Secret, UnusableSecurity

CONFIG: Final = "HEADSTART_KAFKA_CONFIG"
"""Variable that names a `client.properties`."""
_PATHS: Final = ("ssl_ca", "ssl_cert", "ssl_key", *(f"{name}_file" for name in IN_FILES))
_READ_AGAIN: Final = {"sasl_username_file"}
"""Files that are read for a description; the others are read by those who use it."""
_BARE: Final = PREFIX.removeprefix("HEADSTART_")

_own: KafkaSecurity | None = None


def use_security(security: KafkaSecurity | None) -> None:
    """Set the security of this process; None: that of its environment."""
    global _own  # noqa: PLW0603 - one per process, as the environment is
    _own = security


def own_security() -> KafkaSecurity:
    """Return what `use_security` has set, else the environment's. Raises `UnusableSecurity`."""
    return security_from_environment() if _own is None else _own


def security_from_environment() -> KafkaSecurity:
    """Return what HEADSTART_KAFKA_..., else KAFKA_..., and HEADSTART_KAFKA_CONFIG describe.

    Variables override the file. Raises `UnusableSecurity`.
    """
    config = os.environ.get(CONFIG, "")
    return combined_security(config, environment_options())


def combined_security(config: str, options: Mapping[str, str]) -> KafkaSecurity:
    """Return the description of a `client.properties` and of options, which override it.

    `config`: its path, may be empty. Raises `UnusableSecurity`.
    """
    config = os.path.abspath(config) if config else ""
    options = {
        name: os.path.abspath(value) if name in _PATHS else value
        for name, value in options.items()
        if value
    }
    if config and not options:
        return security_in(Path(config))
    found = _combined(config, options)
    if config or options.keys() & _READ_AGAIN:
        return replace(found, again=partial(combined_security, config, options))
    return found


def _combined(config: str, options: Mapping[str, str]) -> KafkaSecurity:
    if not config:
        return described_security(options)
    filed, secrets = options_in(Path(config))
    given = {name for name in IN_FILES if name in options or f"{name}_file" in options}
    kept: dict[str, Secret] = {name: each for name, each in secrets.items() if name not in given}
    other = {name: value for name, value in filed.items() if name not in given}
    return described_security({**other, **options}, kept)


def environment_options() -> dict[str, str]:
    """Return the options that variables give. A value precedes a file of the same prefix."""
    found: dict[str, str] = {}
    for prefix in (_BARE, PREFIX):
        given = {name: os.environ.get(f"{prefix}{name.upper()}", "") for name in OPTIONS}
        for name in IN_FILES:
            if given[name] or given[f"{name}_file"]:
                found.pop(name, None)
                found.pop(f"{name}_file", None)
        found |= {name: value for name, value in given.items() if value}
    return found


def environment_brokers() -> str:
    """Return the brokers that the file in HEADSTART_KAFKA_CONFIG names, or an empty string."""
    config = os.environ.get(CONFIG)
    return brokers_in(Path(config)) if config else ""


def security_of_profile(profile: str) -> KafkaSecurity:
    """Return the security that a spool names: a file, or this process's own.

    Raises `UnusableSecurity`, also if this process has another one than the spool's process.
    """
    if not profile:
        return UNSECURED
    if profile.startswith("/"):
        return _secured_in(Path(profile))
    own = own_security()
    if own.profile != profile:
        raise UnusableSecurity(
            f"the events need the Kafka login {profile!r}, and this process has "
            f"{own.profile or 'none'!r}: start `headstart ship` with the variables of their "
            f"process, or let each process name its own file in {CONFIG}"
        )
    return own


def _secured_in(path: Path) -> KafkaSecurity:
    """Return the security in a file, which had some when a spool noted its path."""
    found = security_in(path)
    if found.protocol == PLAINTEXT and "security.protocol" not in read_properties(path):
        raise UnusableSecurity(
            f"kafka_config {path} names neither TLS nor a login any more: if plain text is wanted, "
            "set security.protocol=PLAINTEXT in it"
        )
    return found


def absolute_paths() -> dict[str, str]:
    """Return this environment's variables of files with absolute paths, for a child elsewhere."""
    names = [CONFIG, *(variable(name) for name in _PATHS)]
    names += [f"{_BARE}{name.upper()}" for name in _PATHS]
    return {name: os.path.abspath(os.environ[name]) for name in names if os.environ.get(name)}
