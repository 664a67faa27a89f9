"""The results of an evaluation as plain data: figures, what they rest on, and two sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from replay.evaluation.figures import Figures, mean_of
from replay.evaluation.known_predictors import BASELINES

DRAWN: Final = ("bins", "curve")
"""Figures for charts, which are not in the results as JSON."""


class Evaluated(NamedTuple):
    """What was evaluated. `refused`: lines that are not runs; `assumptions`: sentences.
    `unknown`: the lines that are refused because arguments are not known."""

    source: str
    runs: int
    calls: int
    seeds: Sequence[int]
    latency: str
    assumptions: Sequence[str]
    refused: Sequence[str]
    unknown: int = 0


def results(evaluated: Evaluated, by_predictor: Mapping[str, Sequence[Figures]]) -> dict[str, Any]:
    """Return the results: the first predictor's figures at the top, the others' in `baselines`.

    Figures are means over the seeds. Times in us, states in bytes, net time as `time_saved`.
    """
    means = {name: averaged(seeds) for name, seeds in by_predictor.items()}
    main, *others = means
    found = {
        "source": evaluated.source,
        "predictor": main,
        "seeds": list(evaluated.seeds),
        **{key: value for key, value in means[main].items() if key not in DRAWN},
        "calls": evaluated.calls,
        "baselines": {
            name: {key: value for key, value in means[name].items() if key not in DRAWN}
            for name in others
        },
        "latency": evaluated.latency,
        "assumptions": list(evaluated.assumptions),
        "refused": len(evaluated.refused),
        "unknown_arguments": evaluated.unknown,
        "named": list(evaluated.refused[:5]),
    }
    return found | {"conclusion": conclusion(found)}


def averaged(seeds: Sequence[Figures]) -> Figures:
    """Return the mean of figures over seeds; bins are added up, the curve is the first seed's."""
    numbers = [{key: value for key, value in each.items() if key not in DRAWN} for each in seeds]
    added = [
        {key: sum(each[key] for each in same) for key in same[0]}
        for same in zip(*(each["bins"] for each in seeds), strict=True)
    ]
    return mean_of(numbers) | {"bins": added, "curve": seeds[0]["curve"]}


def conclusion(found: Mapping[str, Any]) -> list[str]:
    """Return two sentences: how often the predictor is right, and what it saves."""
    return [_accuracy(found), _saving(found)]


def best_simple(found: Mapping[str, Any]) -> str | None:
    """Return the simple predictor with most exact calls; None if none was evaluated."""
    simple = [name for name in found["baselines"] if name in BASELINES]
    return max(simple, key=lambda name: found["baselines"][name]["exact_1"] or 0.0, default=None)


def _accuracy(found: Mapping[str, Any]) -> str:
    name, exact, covered = found["predictor"], found["exact_1"], found["covered_at_85"]
    text = (
        f"{name}: the first guess is right in name and all arguments at {exact:.1%} of the calls; "
        f"{covered:.1%} of the calls could be started early with 85 % of what is started right"
    )
    best = best_simple(found)
    if best is None:
        return f"{text}."
    other = found["baselines"][best]
    text += f"; {best}, the best simple predictor: {other['exact_1']:.1%} and "
    text += f"{other['covered_at_85']:.1%}"
    if other["exact_1"]:
        text += f" ({exact / other['exact_1']:.2f} times as many exact calls)"
    return f"{text}."


def _saving(found: Mapping[str, Any]) -> str:
    parts = []
    for ratio, saved in found["net_time"].items():
        if saved["net"] is None:
            continue
        parts.append(
            f"at a cost ratio of {ratio}, {saved['tool_time_saved']:.1%} of the tools' time and "
            f"{saved['whole_time_saved']:.1%} of the whole time is saved, net {saved['net']:.1%} "
            f"of what a perfect guesser saves ({saved['read_only']['net']:.1%} with read-only "
            "tools alone)"
        )
    if not parts:
        return "Nothing can be saved: by the latencies in use the tools answer at once."
    return (
        f"By the thresholds of the default policy, {'; '.join(parts)} ({found['latency']} times)."
    )
