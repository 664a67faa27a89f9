"""`MemoryProfile`: what a user has set of the memory, for all agents or for one. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

ALL_AGENTS: Final = ""
"""The `agent_id` of what is set for all agents."""
DEFAULT_WINDOW: Final = 200
MOST_CASES: Final = 100_000
MOST_DAYS: Final = 36_500
DAY_MS: Final = 86_400_000


class MemoryProfile(NamedTuple):
    """Settings of the memory of one user, for all agents or for one."""

    agent_id: str = ALL_AGENTS
    enabled: bool = True
    """Off: nothing is retrieved for the user's runs, and no other run is given the user's cases."""
    window_size: int = DEFAULT_WINDOW
    """Of the user's own cases only the newest so many are used."""
    window_days: int | None = None
    """Of the user's own cases only those of so many last days are used; None: of any age."""
    shared: bool = False
    """Whether an agent is given the user's cases of other agents."""
    changed: int | None = None
    """Unix ms; None: the defaults, nothing is stored."""

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object, `agent_id` null for all agents."""
        return self._asdict() | {"agent_id": self.agent_id or None}


def require_window(window_size: int | None = None, window_days: int | None = None) -> None:
    """Raise `ValueError` for a window out of range; None is not checked."""
    for name, value, most in (
        ("window_size", window_size, MOST_CASES), ("window_days", window_days, MOST_DAYS),
    ):  # fmt: skip
        if value is not None and (type(value) is not int or not 1 <= value <= most):
            raise ValueError(
                f"{name} must be a whole number from 1 to {most:,}, not {value!r:.100}"
            )


def effective_profile(stored: Iterable[MemoryProfile], agent_id: str | None) -> MemoryProfile:
    """Return what holds for an agent: its own profile, else that for all agents, else the defaults.

    What is off for all agents is off, whatever is set for one. `agent_id` None: not named.
    """
    by_agent = {each.agent_id: each for each in stored}
    general = by_agent.get(ALL_AGENTS, MemoryProfile())
    own = by_agent.get(agent_id or ALL_AGENTS, general)
    return own._replace(enabled=own.enabled and general.enabled)


def off_reason(user_id: str) -> str:
    """Return what an answer says where the memory of a user is off."""
    return f"the memory of user {user_id!r} is off (`headstart memory profile show`)"
