"""Reads settings from files that variables name, and Kafka's security from bare variables.

`HEADSTART_POSTGRES_FILE` names a file with the value of HEADSTART_POSTGRES: an orchestrator's
mounted secret. Addresses of Postgres and Redis are read there again for each connection.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Final

from headstart.connections.kafka_security import OPTIONS, SECRETS
from headstart.connections.secret_variables import is_from_file, secret_variable

_PREFIX: Final = "HEADSTART_"
FROM_FILES: Final = (
    "postgres", "redis", "operators_key", "embedding_url", "embedding_key", "encryption_key",
)  # fmt: skip
"""Settings that may hold a secret, and whose variable with _FILE appended is read. Kafka's have
settings of their own, because their files are read again for each connection."""
MAY_HOLD_SECRETS: Final = frozenset({*FROM_FILES, "kafka", *(f"kafka_{name}" for name in SECRETS)})
"""Messages about these settings do not repeat their values."""


def secret_files(settings: Collection[str]) -> dict[str, str]:
    """Return the values in the files that variables name, by setting.

    The variable itself precedes, unless it is empty. Raises `UnusableSecurity`.
    """
    found: dict[str, str] = {}
    for name in FROM_FILES:
        if name in settings and not os.environ.get(f"{_PREFIX}{name.upper()}"):
            value = secret_variable(f"{_PREFIX}{name.upper()}")
            if value is not None:
                found[name] = value
    return found


def comes_from_file(setting: str, value: str) -> bool:
    """Return whether this value was read in a file: a child process reads it there itself."""
    return variable_of(setting).endswith("_FILE") and is_from_file(value)


def variable_of(setting: str) -> str:
    """Return the variable that gives a setting, with _FILE if it names a file."""
    name = f"{_PREFIX}{setting.upper()}"
    file = f"{name}_FILE"
    if setting in FROM_FILES and os.environ.get(file) and not os.environ.get(name):
        return file
    return name


def bare_kafka(known: Collection[str]) -> dict[str, str]:
    """Return Kafka's security from variables such as KAFKA_SASL_USERNAME, except settings `known`.

    A secret is left out, too, if its file is known, and the reverse.
    """
    found: dict[str, str] = {}
    for option in OPTIONS:
        setting = f"kafka_{option}"
        other = setting.removesuffix("_file") if setting.endswith("_file") else f"{setting}_file"
        value = os.environ.get(setting.upper())
        if value and setting not in known and other not in known:
            found[setting] = value
    return found
