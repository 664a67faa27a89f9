"""Checks Kafka broker addresses, and refuses credentials in them without repeating them."""

from __future__ import annotations

from typing import Final

from headstart.arguments.checks import InvalidArgument, brokers

CREDENTIALS: Final = "an address is host:port; user and password are not supported"


def holds_credentials(kafka: object) -> bool:
    """Return whether an address, or a list of them, seems to contain credentials."""
    return "@" in str(kafka)


def refuse_credentials(kafka: object) -> None:
    """Raise `InvalidArgument` for an address with credentials, without repeating it."""
    if holds_credentials(kafka):
        raise InvalidArgument(f"kafka: {CREDENTIALS}")


def broker_addresses(kafka: object) -> str:
    """Return Kafka broker addresses without credentials. Raises `InvalidArgument`."""
    refuse_credentials(kafka)
    return brokers(kafka)
