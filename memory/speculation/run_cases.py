"""The cases that one run may use: what its user's profile lets through. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from memory.cases.case import Case
from memory.episodes.record import writer_of
from memory.ranking.evidence import CallIndex
from memory.retrieval.profile_limits import UserProfiles
from memory.users.profile import (
    ALL_AGENTS,
    DAY_MS,
    MemoryProfile,
    effective_profile,
    off_reason,
)


def cases_of_run(
    index: CallIndex,
    agents: Mapping[str, str],
    profiles: UserProfiles,
    user_id: str,
    agent_id: str,
    now_ms: int,
) -> tuple[CallIndex, str]:
    """Return the cases for a run of a user and an agent; none, and why, where the memory is off.

    `index`: of all cases, which is returned itself if all may be used; `agents`: the agent of each
    case that names one, by its key. "" for a user or an agent that is not named.
    """
    if not user_id:
        return index, ""
    profile = effective_profile(profiles.get(user_id, ()), agent_id)
    if not profile.enabled:
        return CallIndex(), off_reason(user_id)
    writer = writer_of(user_id, None)
    own = [case for case in index.cases if case.writer == writer]
    used = {case.key for case in _used(own, agents, profile, agent_id, now_ms)}
    if len(used) == len(own):
        return index, ""
    found = CallIndex()
    for case in index.cases:
        if case.writer != writer or case.key in used:
            found.add(case)
    return found, ""


def _used(
    own: list[Case], agents: Mapping[str, str], profile: MemoryProfile, agent_id: str, now_ms: int
) -> list[Case]:
    since = -1 if profile.window_days is None else now_ms - profile.window_days * DAY_MS
    passing = [
        case
        for case in own  # oldest first
        if (profile.shared or agents.get(case.key, ALL_AGENTS) == agent_id)
        and (case.at is None or case.at >= since)
    ]
    return passing[-profile.window_size :]
