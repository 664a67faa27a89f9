"""Lists every setting with its value, origin and meaning; secrets are masked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic import SecretStr

from headstart.scrubbing.masking import HIDDEN, masked, masked_address
from settings import LoadedSettings, Settings
from settings.variables import EXECUTOR, HASH_KEY


class Shown(NamedTuple):
    """One setting for display."""

    name: str
    value: Any
    origin: str
    meaning: str


def shown(reading: LoadedSettings) -> Iterator[Shown]:
    """Yield the service's settings, then the variables that executors read."""
    for name, field in Settings.model_fields.items():
        value = _plain(getattr(reading.settings, name))
        if name in {"postgres", "redis"}:
            value = masked_address(value)
        yield Shown(name, value, reading.origins[name], field.description or "")
    for variable, (default, meaning) in EXECUTOR.items():
        given = os.environ.get(variable)
        origin = "default" if given is None else f"environment {variable}"
        name = variable.removeprefix("HEADSTART_").lower()
        value = masked(default if given is None else given)
        yield Shown(name, HIDDEN if given and variable == HASH_KEY else value, origin, meaning)


def _plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return str(value)  # masked by pydantic
    if isinstance(value, tuple):
        return ",".join(value)
    return masked(value) if isinstance(value, str) else value
