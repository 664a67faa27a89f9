"""Which services `up` and `demo` use: started here, at a given address, or as the settings say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import typer

if TYPE_CHECKING:
    from settings import LoadedSettings

_HERE: Final = ("embedded", "apache")
_ELSEWHERE: Final = ("environment ", "file ")
"""Beginnings of the origins of an address that other commands use, too."""


def chosen_services(reading: LoadedSettings, given: Mapping[str, str]) -> dict[str, str]:
    """Return the options with the addresses of the settings in place of `configured`.

    `given`: the values of --kafka, --postgres and --redis, by name. The passwords of addresses are
    masked in all output from now on. Raises `typer.BadParameter`.
    """
    from deploy.local.accepted import CONFIGURED, why_not
    from headstart.scrubbing.masking import remember_passwords

    found = dict(given)
    for part, value in given.items():
        if value == CONFIGURED:
            found[part] = _configured(reading, part)
        if wrong := why_not(part, found[part]):
            raise typer.BadParameter(wrong, param_hint=f"--{part}")
    remember_passwords(found["postgres"], found["redis"])
    return found


def unused_addresses(reading: LoadedSettings, chosen: Mapping[str, str]) -> str | None:
    """Return a note on addresses that the settings have and this system does not use, else None.

    `chosen`: as `chosen_services` returns them.
    """
    unused = {
        part: origin
        for part, value in chosen.items()
        if value in _HERE and (origin := reading.origins[part]).startswith(_ELSEWHERE)
    }
    if not unused:
        return None
    named = ", ".join(f"{part} ({origin})" for part, origin in unused.items())
    options = " ".join(f"--{part} configured" for part in unused)
    return (
        f"note: this system does not use {named}, but other commands and executors do; unset it, "
        f"or give {options}"
    )


def _configured(reading: LoadedSettings, part: str) -> str:
    if not reading.origins[part].startswith(_ELSEWHERE):
        also = ", or bootstrap.servers of HEADSTART_KAFKA_CONFIG" if part == "kafka" else ""
        raise typer.BadParameter(
            f"no address is configured: set HEADSTART_{part.upper()}{also}",
            param_hint=f"--{part}",
        )
    return str(getattr(reading.settings, part))
