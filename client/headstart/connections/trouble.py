"""What is wrong with a service, and what to do: for messages."""

from __future__ import annotations

from typing import NamedTuple


class Trouble(NamedTuple):
    """A problem and its remedy.

    `refused`: the service runs, and TLS, the login or a right is at fault.
    """

    what: str
    remedy: str
    refused: bool = False
