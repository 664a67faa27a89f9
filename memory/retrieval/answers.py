"""When a past answer may be given again: the cache rule of source 003. Pure.

By default only for an equal folded query of one workflow type, in an equal context. The rule of the
source gives it for a similar query: of queries whose nearest other query was over .8 similar, 2 %
had made the same calls with the same arguments, so it is an option. Only the asking writer's own
answer is given, or one that two independent writers gave: an answer of one user may hold what is
private to that user, or may have been planted for others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from memory.cases.clusters import CONFIRMING
from memory.cases.writers import independent_writer
from memory.episodes.canonical import canonical_json
from memory.episodes.hashes import query_hash
from memory.episodes.record import writer_of
from memory.retrieval.request import MemoryQuery
from memory.retrieval.result import FoundEpisode, Retrieval


@dataclass(frozen=True, kw_only=True)
class AnswerRule:
    """What a past answer must have. Raises `ValueError` for a limit that is not from 0 to 1."""

    above_confidence: float = 0.7
    above_similarity: float | None = None
    """None: the query must be equal. The source: .8."""
    context_similarity: float = 0.5
    """From which similarity on an episode is worth showing."""
    keys: tuple[str, ...] | None = None
    """Keys of the context that must be equal; None: all. A user's id is often one of them."""
    shared: bool = False
    """Give an answer of any one writer to all. Only where answers hold nothing private."""

    def __post_init__(self) -> None:
        for name in ("above_confidence", "above_similarity", "context_similarity"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"{name} must be from 0 to 1, not {value!r}")


SAFE = AnswerRule()
SOURCE = AnswerRule(above_similarity=0.8, shared=True)
"""The rule of source 003, which also asks for no writer."""


class PastAnswer(NamedTuple):
    """An answer that may be given again, and episodes that are worth showing."""

    response: str | None
    """None: the query must be processed."""
    episode: FoundEpisode | None
    """Where the response is from."""
    similar: tuple[FoundEpisode, ...]
    """For the context of the agent, best first."""
    degraded: tuple[str, ...] = ()
    """What was not searched, and why: also that the user's memory is off."""
    retrieval: Retrieval | None = None
    """Its id joins what is logged of the answer: `Memory.reused`, `Memory.evaluated`."""


def past_answer(
    query: MemoryQuery,
    found: Iterable[FoundEpisode],
    rule: AnswerRule = SAFE,
    *,
    complete: bool = True,
) -> PastAnswer:
    """Return the answer that `rule` allows, from the newest episode of those that are alike enough.

    If that one failed, of whichever writer it is, older ones do not answer either: what worked once
    no longer does. Else each writer counts by its newest episode. That of the asking writer (user,
    else agent; all runs that name neither are one) decides alone where there is one; else the
    newest whose response two independent writers gave. An episode with less confidence than the
    rule demands, without a response, or whose answers were rejected more often than accepted
    (`usefulness` under 0) does not answer. Not `complete`: the newest may be missing, so none does.
    """
    episodes = list({each.id: each for each in found}.values())
    alike = [each for each in episodes if _is_alike(query, each, rule)]
    finished = [each for each in alike if each.outcome is not None]
    answers = _answering(query, finished, rule) if complete else None
    similar = tuple(
        each
        for each in episodes
        if each is not answers
        and (
            _is_equal(query, each, rule.keys) or (each.similarity or 0.0) >= rule.context_similarity
        )
    )
    return PastAnswer(answers.response if answers else None, answers, similar)


def usefulness(accepted: int, rejected: int) -> float:
    """Return what is stored as an episode's usefulness: from -1, all rejected, to 1; 0 unknown.

    The source's accepted / (accepted + rejected) cannot tell "never judged" from "always rejected".
    """
    return (accepted - rejected) / (accepted + rejected) if accepted + rejected else 0.0


def _answering(
    query: MemoryQuery, finished: Sequence[FoundEpisode], rule: AnswerRule
) -> FoundEpisode | None:
    newest = max(finished, key=_age, default=None)
    if newest is None or newest.outcome != "success":
        return None
    if rule.shared:
        return newest if _may_answer(newest, rule) else None
    latest = {independent_writer(each.writer): each for each in sorted(finished, key=_age)}
    own = latest.get(independent_writer(writer_of(query.user_id, query.agent_id)))
    if own is not None:
        return own if _may_answer(own, rule) else None
    good = [each for each in latest.values() if _may_answer(each, rule)]
    writers = Counter(each.response for each in good)
    confirmed = [each for each in good if writers[each.response] >= CONFIRMING]
    return max(confirmed, key=_age, default=None)


def _age(episode: FoundEpisode) -> tuple[int, int]:
    return episode.ended, episode.id


def _may_answer(episode: FoundEpisode, rule: AnswerRule) -> bool:
    return (
        episode.outcome == "success"
        and (episode.confidence or 0.0) > rule.above_confidence
        and episode.usefulness >= 0
        and bool(episode.response)
    )


def _is_alike(query: MemoryQuery, episode: FoundEpisode, rule: AnswerRule) -> bool:
    similar = rule.above_similarity is not None and (
        (episode.similarity or 0.0) > rule.above_similarity
    )
    return similar or _is_equal(query, episode, rule.keys)


def _is_equal(query: MemoryQuery, episode: FoundEpisode, keys: tuple[str, ...] | None) -> bool:
    """Return whether query, workflow type and context are equal.

    A query without a workflow type or a context has none to compare, and equals nothing.
    """
    if query.workflow_type != episode.workflow_type or query.context is None:
        return False
    wanted = query_hash(query.text)
    if wanted is None or wanted != episode.query_hash:
        return False
    return _chosen(query.context, keys) == _chosen(episode.context, keys)


def _chosen(context: Mapping[str, Any], keys: tuple[str, ...] | None) -> str:
    chosen = context if keys is None else {key: context[key] for key in keys if key in context}
    return canonical_json(chosen)
