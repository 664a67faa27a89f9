"""The results of an evaluation of the memory as plain data: figures, and sentences about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from memory.cases.case import Case
from memory.cases.sequences import MOST_CALLS
from memory.evaluation.methods import DEFAULT, LABELS, REQUESTS
from memory.evaluation.poisoning import MOST_CASES
from memory.ranking.candidates import WINDOW

ASSUMPTIONS: Final = (
    "a run is asked for after its first call; the rest of its tools is what is to be expected",
    "a request is made before the first call, by the query alone, with the workflow type; what it "
    "found is judged on the same rest, by the cases with the run's first tool where there are some",
    "a run without a query is not asked for by requests; then, and where nothing is shown, the "
    "typical course counts; a run has ended, and is learned, before the next one begins",
    f"of a run the first {MOST_CALLS} calls after the first count",
    f"poisoned cases are tried on the newest {MOST_CASES:,} runs of a domain",
    f"the typical course of the default is that of the newest {WINDOW} cases after the same tool",
    "a case helps if its tools are those that were called; no model was run with and without it",
)
_SPOKEN: Final = {
    "all": ("With all earlier runs", "of all earlier runs"),
    "new_tasks": ("Own task left out", "without the own task"),
    "new_situations": (
        "Own task and runs with an equal first call left out",
        "without the own task and equal first calls",
    ),
}
_NAMED: Final = 20
"""Refused lines and events that are named."""
_HELPS: Final = "which helps"
_UNANSWERED: Final = "no request was answered (runs without a query are not asked for)"
_RIVALS: Final = ("memento", "memrl")


@dataclass
class ReadCounts:
    """What was read: `runs` with a call, and others; `refused`: events or lines, the first named.

    `events`: of a log, 0 otherwise.
    """

    events: int = 0
    runs: int = 0
    without_call: int = 0
    refused: int = 0
    named: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def refuse(self, why: str) -> None:
        """Count what is no event or episode, and name the first ones."""
        self.refused += 1
        if len(self.named) < _NAMED:
            self.named.append(why)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a result."""
        return {
            "without_call": self.without_call, "refused": self.refused, "named": self.named,
        }  # fmt: skip


def results(source: str, cases: Sequence[Case], figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results: counts, the columns, `evidence`, and sentences."""
    tasks = {(case.kind, case.task) for case in cases if case.task}
    counts = {
        "source": source,
        "runs": len(cases),
        "calls": sum(len(case.calls) for case in cases),
        "tasks": len(tasks),
        "without_task": sum(not case.task for case in cases),
        "with_query": sum(bool(case.query) for case in cases),
        "with_reward": sum(case.reward is not None for case in cases),
        "kinds": len({case.kind for case in cases}),
    }
    return {
        **counts,
        **figures,
        "methods": LABELS,
        "conclusion": conclusion(figures),
        "assumptions": list(ASSUMPTIONS),
    }


def tenant_results(
    source: str, tenants: Mapping[str, Any], too_few: Mapping[str, int], least: int
) -> dict[str, Any]:
    """Return the results of several tenants: `tenants` by name, and how many runs others have."""
    helped = {
        method: sum(_verdict(found["all"][method]) == _HELPS for found in tenants.values())
        for method in (REQUESTS, DEFAULT)
    }
    said = [
        f"Requests help {helped[REQUESTS]:,} of {len(tenants):,} tenants with all earlier runs as "
        f"cases, the memory after the first call {helped[DEFAULT]:,} (edit similarity, the "
        "interval above 0)."
    ]
    if too_few:
        said.append(
            f"{len(too_few):,} tenants have fewer than {least} runs with a call, too few to "
            "evaluate."
        )
    return {
        "source": source,
        "runs": sum(found["runs"] for found in tenants.values()),
        "tenants": dict(tenants),
        "too_few": dict(too_few),
        "conclusion": said,
        "assumptions": list(ASSUMPTIONS),
    }


def conclusion(figures: Mapping[str, Any]) -> list[str]:
    """Return what the figures say: of each column, of confidence, of poisoned cases."""
    said = [
        sentence
        for key, words in _SPOKEN.items()
        if (sentence := _column(figures[key], words[0], figures["answered_requests"][key]))
    ]
    for key, (_, words) in _SPOKEN.items():
        evidence = figures["evidence"][key]
        if evidence["guesses"]:
            ratio = evidence["utility_ratio"]
            times = "" if ratio is None else f", {ratio:.2f} times the utility at r = .7"
            said.append(
                f"Votes {words} as evidence for confidence: log loss "
                f"{evidence['log_loss_delta']:+.3f} nats a guess{_between(evidence)}{times}."
            )
    poisoned = figures["poisoning"]
    if poisoned["memory"]["of"]:
        said.append(
            f"50 poisoned cases of one writer steered {poisoned['memory']['steered']:,} of "
            f"{poisoned['memory']['of']:,} answers; a memory of the nearest case alone "
            f"{poisoned['nearest']['steered']:,}."
        )
    return said or ["There is nothing to compare: one run of a kind has none before it."]


def _column(methods: Mapping[str, Any], words: str, answered: int) -> str:
    """Return what requests are worth, then what the memory is after the first call."""
    if methods[DEFAULT]["edit"] is None:
        return ""
    asked = f"requests {_gain(methods[REQUESTS])}" if answered else _UNANSWERED
    named = ", ".join(
        f"{name} {methods[name]['exact']:.1%}" for name in (REQUESTS, DEFAULT, *_RIVALS)
    )
    return (
        f"{words}, edit similarity against typical: {asked}; after the first call (memory) "
        f"{_gain(methods[DEFAULT])}. Exact sequences: {named}."
    )


def _gain(figures: Mapping[str, Any]) -> str:
    ends = figures["delta_edit_interval"]
    between = "" if ends is None else f" ({ends[0]:+.3f} to {ends[1]:+.3f})"
    return f"{figures['edit']:.3f}, {figures['delta_edit']:+.3f}{between}, {_verdict(figures)}"


def _verdict(figures: Mapping[str, Any]) -> str:
    ends = figures["delta_edit_interval"]
    if ends is None:
        return "too few tasks to say whether it helps"
    return (
        _HELPS
        if ends[0] > 0.0
        else "which does harm"
        if ends[1] < 0.0
        else "no difference can be shown"
    )


def _between(evidence: Mapping[str, Any]) -> str:
    ends = evidence["log_loss_interval"]
    return "" if ends is None else f" ({ends[0]:+.3f} to {ends[1]:+.3f})"
