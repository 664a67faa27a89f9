"""What is wrong with a service, and what to do: for messages."""

from __future__ import annotations

from typing import NamedTuple


class Trouble(NamedTuple):
    """A problem and its remedy."""

    what: str
    remedy: str
