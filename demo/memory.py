"""Asks the memory after the demo's run: three retrieved cases, and what retrieval was worth."""

from __future__ import annotations

import asyncio
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from deploy.local import Addresses
from memory.cases.case import Case
from memory.embedding.wordllama import WordLlamaEmbedder
from memory.evaluation.figures import method_figures
from memory.evaluation.methods import DEFAULT, REFERENCE
from memory.evaluation.prequential import JudgedRun, by_time, judged_runs, query_of
from memory.retrieval.client import Memory
from memory.retrieval.result import FoundEpisode
from memory.store.outbox import outbox_lag
from replay.memories.case_store import CaseStore
from replay.memories.episode_sources import store_log
from replay.predictions.unjoined import Filter
from replay.sources.base import ReadOptions, TimeRange
from replay.sources.broker import BrokerSource
from sinks.connections import connect_postgres

SHOWN: Final = 3
EVALUATED: Final = 400
"""Runs that are evaluated, the newest: more would take longer than the demo should."""
STILL_S: Final = 60.0
"""How long the memory worker may make no progress: beside other work it gets little CPU."""
_METHODS: Final = (REFERENCE, DEFAULT)


def memory_of(
    addresses: Addresses,
    tenant: str,
    begin: Mapping[int, int],
    end: Mapping[int, int],
    check: Callable[[], None],
) -> dict[str, Any]:
    """Return the cases that are retrieved for the newest run, and figures of retrieval.

    `begin`, `end`: the offsets of the demo's events. `check` is called while the memory worker
    works off its outbox.
    """
    cases = _cases(addresses.kafka, tenant, begin, end)
    found: dict[str, Any] = {"query": "", "cases": [], "degraded": []}
    if cases:
        asyncio.run(_wait_for_episodes(addresses.postgres, check))
        found |= _retrieved(addresses.postgres, tenant, cases[-1])
    return found | {"worth": _worth(cases)}


def _cases(kafka: str, tenant: str, begin: Mapping[int, int], end: Mapping[int, int]) -> list[Case]:
    """Return the newest runs of the log as cases."""
    reading = ReadOptions(range=TimeRange(begin=dict(begin), end=dict(end)), chosen=Filter(tenant))
    with tempfile.TemporaryDirectory(prefix="headstart-memory-") as folder:
        store = CaseStore(Path(folder) / "cases", EVALUATED)
        store_log(BrokerSource(kafka, reading), store, lambda _: None)
        return store.cases(tenant)


async def _wait_for_episodes(dsn: str, check: Callable[[], None]) -> None:
    """Wait until the memory worker has taken all runs, or made no progress for `STILL_S`."""
    least, deadline = math.inf, 0.0
    async with await connect_postgres(dsn) as connection:
        while rows := (await outbox_lag(connection)).rows:
            if rows < least:
                least, deadline = rows, time.monotonic() + STILL_S
            elif time.monotonic() > deadline:
                return
            check()
            await asyncio.sleep(0.2)


def _retrieved(dsn: str, tenant: str, asked: Case) -> dict[str, Any]:
    """Return what is retrieved for the request of a run; the run itself is left out."""
    with Memory(dsn, tenant=tenant, journal=False, timeout_s=STILL_S) as memory:
        of_kind: dict[str, Any] = {"workflow_type": asked.kind, "k": SHOWN + 1}
        if asked.query:
            found = memory.search(asked.query, **of_kind)
        else:
            found = memory.search(mode="exact", context={}, keys=(), **of_kind)
    others = [each for each in found.episodes if str(each.id) != asked.key][:SHOWN]
    return {
        "query": asked.query,
        "workflow_type": asked.kind,
        "tools": list(asked.tools),
        "cases": [_shown(each) for each in others],
        "degraded": list(found.degraded),
    }


def _shown(episode: FoundEpisode) -> dict[str, Any]:
    return {
        "workflow_id": episode.workflow_id,
        "query": episode.query or "",
        "similarity": episode.similarity,
        "tools": episode.tools,
        "outcome": episode.outcome,
    }


def _worth(cases: Sequence[Case]) -> dict[str, Any]:
    """Return how right the memory was, beside the typical course, run by run."""
    judged: list[JudgedRun] = []
    embedder = WordLlamaEmbedder()
    for kind in dict.fromkeys(case.kind for case in cases):
        own = by_time([case for case in cases if case.kind == kind])
        vectors = embedder.embed([query_of(case) for case in own])
        judged += judged_runs(own, vectors, methods=_METHODS)
    return {"runs": len(cases), **method_figures(judged)}


def worth_sentence(worth: Mapping[str, Any]) -> str:
    """Return what retrieval was worth, in a sentence, also if it was worth nothing."""
    own, typical = worth[DEFAULT], worth[REFERENCE]
    if own["edit"] is None:
        return "Retrieval: too few runs to say what it was worth."
    ends = own["delta_edit_interval"]
    verdict = (
        "too few tasks to say whether it helped" if ends is None
        else "it helped" if ends[0] > 0.0
        else "it did harm" if ends[1] < 0.0
        else "no difference can be shown: it was worth nothing here"
    )  # fmt: skip
    between = "" if ends is None else f" (95 % interval {ends[0]:+.3f} to {ends[1]:+.3f})"
    return (
        f"Retrieval, over the newest {worth['runs']:,} runs: the rest of a run was foreseen with "
        f"an edit similarity of {own['edit']:.3f}, the typical course gives {typical['edit']:.3f}; "
        f"{own['delta_edit']:+.3f}{between}: {verdict}."
    )


def memory_lines(found: Mapping[str, Any]) -> list[str]:
    """Return it as lines for a terminal."""
    lines = [f"memory: {each}" for each in found["degraded"]]
    if found["cases"]:
        asked = found["query"] or f"a run of {found['workflow_type']}"
        lines.append(f"memory: {len(found['cases'])} cases retrieved for: {one_line(asked)}")
        for each in found["cases"]:
            lines.append(f"  {case_sentence(each)}")
    else:
        lines.append("memory: no case was found; is it switched off (HEADSTART_MEMORY)?")
    return [*lines, worth_sentence(found["worth"])]


def case_sentence(case: Mapping[str, Any]) -> str:
    """Return a case in a line: its query, how similar it is, what was called, how it ended."""
    alike = "" if case["similarity"] is None else f" (similarity {case['similarity']:.2f})"
    query = one_line(case["query"]) or case["workflow_id"]
    return f"{query}{alike}: {_course(case['tools'])}; {case['outcome'] or 'not ended'}"


def _course(tools: Sequence[str]) -> str:
    shown = " > ".join(tools[:_TOOLS])
    return shown + (f" > {len(tools) - _TOOLS} more" if len(tools) > _TOOLS else "")


_TOOLS: Final = 8


def one_line(text: str, most: int = 80) -> str:
    """Return a text in one line of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."
