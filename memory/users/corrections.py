"""Makes the event that corrects a memory, and sends it: the episode follows from its events."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from headstart.emitting.emitter import Emitter
from headstart.events.constructors import Common, user_feedback
from memory.episodes.corrections import require_correction
from memory.episodes.hashes import id_text
from memory.episodes.record import Episode

SEND_TIMEOUT_S: Final = 30.0


def correction_event(episode: Episode, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the event by which the owner of an episode corrects it.

    `changes`: new values of query, response (both: None for no text), outcome, concepts, domains
    and insights. Raises `InvalidCorrection`.
    """
    require_correction(changes)
    common: Common = {
        "tenant": episode.tenant,
        "workflow_type": episode.workflow_type,
        "workflow_id": episode.workflow_id,
        "timestamp": max(time.time_ns() // 1_000_000, episode.ended + 1),
        "data": {"correction": dict(changes)},
    }
    if episode.user_id is not None:
        common["user_id"] = episode.user_id
    return dict(user_feedback(target_id=id_text(episode.id), source="user", **common))


def send_correction(
    kafka: str, event: Mapping[str, Any], timeout_s: float = SEND_TIMEOUT_S
) -> None:
    """Send a correction and wait for the broker. Raises `NotDelivered` after `timeout_s`.

    Secrets in it are replaced, as in every event of the client.
    """
    emitter = Emitter(kafka, durable=False)
    emitter.emit(dict(event))
    emitter.close(timeout_s)


def includes(episode: Episode, event: Mapping[str, Any]) -> bool:
    """Return whether an episode was assembled with a correction, which is newer than all else."""
    return bool(episode.ended >= event["timestamp"])
