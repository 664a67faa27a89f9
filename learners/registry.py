"""Every policy by name."""

from __future__ import annotations

from typing import Final

from learners.ema import Ema
from learners.policy import Policy
from learners.td import Td

POLICIES: Final[dict[str, Policy]] = {policy.name: policy for policy in (Ema(), Td())}

DEFAULT: Final = "td"
"""Earns more than EMA in every world of design §5 (docs/decisions/0003)."""


def policy(name: str) -> Policy:
    """Return the policy called `name`. Raises `LookupError` naming those there are."""
    try:
        return POLICIES[name]
    except KeyError:
        known = ", ".join(sorted(POLICIES))
        raise LookupError(f"there is no policy {name!r}; choose one of {known}") from None
