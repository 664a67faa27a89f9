"""What the users of the demo's runs ask for, and with which arguments recorded calls were made."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from demo.synthetic_world import SyntheticRun
from demo.traces import TraceRun
from memory.episodes.calls import arguments_text

REQUESTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "refund": ("I want my money back", "Please refund my order", "Refund what I paid"),
        "booking": ("Book me a place", "I need a booking for Friday", "Reserve it for two"),
        "support": ("It does not work", "Please help with a fault", "My line has a fault"),
    }
)
"""By workflow type; the domain is added, which is what their calls depend on."""


def synthetic_request(run: SyntheticRun) -> str:
    """Return the request of a synthetic run, a function of its number."""
    texts = REQUESTS[run.workflow_type]
    return f"{texts[int(run.task_id) % len(texts)]} ({run.domain})"


def recorded_request(run: TraceRun) -> str:
    """Return the user's first message before the first call; "" if none is recorded."""
    said = run.content[0].get("user_before") if run.content and run.steps else None
    texts = [said] if isinstance(said, str) else said if isinstance(said, list) else []
    return next((text for text in texts if isinstance(text, str) and text.strip()), "")


def recorded_arguments(run: TraceRun | None, place: int) -> str | None:
    """Return the arguments of a call as canonical JSON, None if they are not known."""
    if run is None or place >= len(run.content):
        return None
    given = run.content[place].get("args")
    return None if given is None else arguments_text(given)
