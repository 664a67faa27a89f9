"""Evidence: what the found cases say together, in clusters, ranked by the tenant's policy.

A search finds a pool of cases; the active policy ranks them, or the search itself where none is
active. Cases that took the same course are one cluster. Where cases have not helped so far, nothing
is shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection

from headstart.prediction.interface import ToolCall
from memory.cases.case import UNKNOWN_REWARD, Case, words
from memory.cases.clusters import CaseCluster, clusters
from memory.cases.episode_case import case_of_episode
from memory.cases.offered_tools import OfferedTools
from memory.episodes.hashes import fold, id_text
from memory.ranking.logistic import OnlineLogistic
from memory.ranking.policy import CasePolicy, RankedPool, knows
from memory.ranking.policy_learning import alike_tools
from memory.ranking.pool import POOL, Pool, PoolCase
from memory.ranking.standing import Standing
from memory.ranking.stored_policy import NO_VERSION, StoredPolicy
from memory.retrieval.request import MOST, MemoryQuery
from memory.retrieval.result import FoundEpisode, Retrieval
from memory.retrieval.statements import statement

NOTHING_FOUND: Final = "no finished run with a tool call matches"
_DAY_MS: Final = 86_400_000
_STALE_SHARE: Final = 4
"""Episodes that are searched for each that is ranked, where stale ones are left out."""


class EvidenceCase(NamedTuple):
    """A cluster, with its best successful run, or its best one, as the example, and a contrast."""

    cluster: CaseCluster
    example: FoundEpisode
    contrast: FoundEpisode | None

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        cluster = self.cluster
        return {
            "tools": list(cluster.sequence),
            "weight": cluster.weight,
            "support": cluster.support,
            "writers": cluster.writers,
            "confirmed": cluster.confirmed,
            "success_rate": cluster.success_rate,
            "success_interval": cluster.success_interval and list(cluster.success_interval),
            "example": id_text(self.example.id),
            "contrast": self.contrast and id_text(self.contrast.id),
        }


class CaseEvidence(NamedTuple):
    """What past runs say of a request."""

    cases: tuple[EvidenceCase, ...]
    """At most k of the request, confirmed ones first."""
    retrieval: Retrieval
    """Its episodes are the reference cases: those that voted, then the contrasts."""
    policy: int | None = None
    """Version of the policy that ranked; None: similarity."""
    reason: str = ""
    """Why there are no cases."""
    stale: int = 0
    """Found runs that are left out, because their calls cannot be made with the tools offered."""


async def stored_policy(connection: AsyncConnection[Any], tenant: str) -> StoredPolicy | None:
    """Return the newest policy, within a transaction of the tenant; None without one."""
    cursor = await connection.execute(statement("policy"), {"tenant": tenant})
    row = await cursor.fetchone()
    if row is None or not knows(row[2]):
        return None
    version, status, _, weights, standing = row
    policy = CasePolicy(OnlineLogistic(weights)) if status == "active" else None
    return StoredPolicy(version, policy, Standing(standing))


def pool_size(query: MemoryQuery, offered: OfferedTools | None = None) -> int:
    """Return how many episodes to search for k clusters; more where stale ones are left out."""
    return min(MOST, max(POOL, 4 * query.k) * (1 if offered is None else _STALE_SHARE))


def evidence_of(
    query: MemoryQuery,
    found: Retrieval,
    stored: StoredPolicy | None,
    now_ms: float,
    writer: str = "",
    offered: OfferedTools | None = None,
) -> CaseEvidence:
    """Return the evidence of found episodes, best first. Pure.

    `writer`: of the run that asks, as `memory.episodes.record.writer_of` names it. `offered`: runs
    whose calls cannot be made with these tools are left out, before anything is counted.
    """
    fresh, why = _callable(found.episodes, offered)
    ranked = found._replace(episodes=fresh[: pool_size(query)])
    evidence = _evidence(query, ranked, stored, now_ms, writer)
    stale = len(found.episodes) - len(fresh)
    if stale and evidence.reason == NOTHING_FOUND:
        reason = f"{stale} found runs cannot be made with the tools offered now: {why}"
        evidence = evidence._replace(reason=reason)
    return evidence._replace(stale=stale)


def _callable(
    episodes: Sequence[FoundEpisode], offered: OfferedTools | None
) -> tuple[tuple[FoundEpisode, ...], str]:
    """Return the episodes whose calls can be made, and why the first other one's cannot."""
    if offered is None:
        return tuple(episodes), ""
    whys = [offered.misfit(each.calls) for each in episodes]
    fresh = tuple(each for each, why in zip(episodes, whys, strict=True) if not why)
    return fresh, next(filter(None, whys), "")


def _evidence(
    query: MemoryQuery, found: Retrieval, stored: StoredPolicy | None, now_ms: float, writer: str
) -> CaseEvidence:
    episodes = _of_one_kind(query, found.episodes)
    if not episodes:
        return CaseEvidence((), found._replace(episodes=()), reason=NOTHING_FOUND)
    kind = episodes[0].workflow_type
    version = stored or NO_VERSION
    if not version.helps(kind):
        why = f"on the last runs of {kind} past cases foresaw no more than the usual course"
        return CaseEvidence((), found._replace(episodes=()), reason=why)
    pool = _pool(query, episodes, now_ms, writer)
    ranked = version.ranked(pool)
    cases = _clustered(episodes, ranked, query.k, writer)
    shown = found._replace(episodes=_referenced(cases, episodes, ranked))
    return CaseEvidence(cases, shown, version.version if version.policy else None)


def _of_one_kind(query: MemoryQuery, found: Sequence[FoundEpisode]) -> list[FoundEpisode]:
    """Return the finished episodes with a call, of the workflow type that the best ones have."""
    finished = [each for each in found if each.outcome is not None and each.tools]
    if query.workflow_type is None:
        shares: dict[str, float] = defaultdict(float)
        for rank, each in enumerate(finished, 1):
            shares[each.workflow_type] += 1 / rank
        kind = max(shares, key=shares.__getitem__, default="")
        finished = [each for each in finished if each.workflow_type == kind]
    return finished


def _pool(query: MemoryQuery, episodes: Sequence[FoundEpisode], now_ms: float, writer: str) -> Pool:
    asked = fold(query.text)
    compared = [each.similarity for each in episodes if each.similarity is not None]
    least = min(compared, default=0.0)
    cases = [
        PoolCase(
            words=frozenset(words(each.query or "")),
            tools=tuple(each.tools),
            writer=each.writer,
            cosine=least if each.similarity is None else each.similarity,
            equal_query=bool(asked) and fold(each.query or "") == asked,
            own=bool(writer) and each.writer == writer,
            reward=UNKNOWN_REWARD if each.reward is None else each.reward,
            age_days=(now_ms - each.ended) / _DAY_MS,
            usefulness=each.usefulness,
            support=each.support,
        )
        for each in episodes
    ]
    return Pool(frozenset(words(query.text)), cases, alike_tools([each.tools for each in cases]))


def _clustered(
    episodes: Sequence[FoundEpisode], ranked: RankedPool, limit: int, writer: str
) -> tuple[EvidenceCase, ...]:
    """Return the clusters that have votes; cases without one count as support."""
    voted = ranked.rows.tolist()
    others = sorted(set(range(len(episodes))) - set(voted))
    order = [episodes[row] for row in (*voted, *others)]
    weights = [*ranked.votes.tolist(), *[0.0] * len(others)]
    by_key = {str(each.id): each for each in order}
    found = clusters([_case(each) for each in order], weights, limit, writer)
    return tuple(_evidence_case(each, by_key) for each in found if each.weight > 0)


def _evidence_case(cluster: CaseCluster, by_key: dict[str, FoundEpisode]) -> EvidenceCase:
    examples = [by_key[case.key] for case in cluster.examples]
    example = next((each for each in examples if each.outcome == "success"), examples[0])
    contrast = cluster.contrast and by_key[cluster.contrast.key]
    return EvidenceCase(cluster, example, None if contrast is example else contrast)


def _referenced(
    cases: Sequence[EvidenceCase], episodes: Sequence[FoundEpisode], ranked: RankedPool
) -> tuple[FoundEpisode, ...]:
    """Return the cases that voted for what is shown, by cluster, then the contrasts."""
    voted = {episodes[row].id for row in ranked.rows}
    by_id = {each.id: each for each in episodes}
    ids = [
        int(case.key)
        for each in cases
        for case in each.cluster.examples
        if int(case.key) in voted or int(case.key) == each.example.id
    ]
    ids += [each.contrast.id for each in cases if each.contrast is not None]
    return tuple(by_id[id] for id in dict.fromkeys(ids))


def _case(found: FoundEpisode) -> Case:
    """Return the case of a found episode; clusters are of tools, so it has no arguments."""
    return case_of_episode(
        found,
        at=found.ended,
        calls=(ToolCall(tool, {}) for tool in found.tools),
        support=found.support,
    )
