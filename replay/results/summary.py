"""Adds up the sums of all units: figures by policy and context.

The report of a backtest, as plain data: the command prints it, `page` draws it. Utilities,
gains and costs are in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any, Final

from learners.modes import rates
from replay.engine.engine import LIVE
from replay.engine.ground_truth import Bin, merged
from replay.predictions.assumptions import Basis
from replay.predictions.estimates import Estimate, EstimatedGuesses, sentences
from replay.predictions.notes import Notes
from replay.predictions.unjoined import Filter
from replay.results.bootstrap import Bootstrap, Interval
from replay.results.conclusion import NEVER, conclusion, nothing_to_earn
from replay.results.sensitivity import UnsureSums, may_lead, undecided
from replay.results.timelines import timelines
from replay.results.unit_results import ArmSums, PartSums, UnitSums

FIXED: Final = "fixed"
MOST_CONTEXTS: Final = 500


def report(
    source: str,
    learners: Mapping[str, str],
    units: Sequence[UnitSums],
    *,
    part: int = 0,
    against: str | None = None,
    chosen: Filter = Filter(),  # noqa: B008 - it is frozen
) -> dict[str, Any]:
    """Return the report of a backtest. `learners`: specification of each policy by its name.

    `part`: of those that a split made; `against`: what all are compared with, else what was done
    live where the log knows, else the fixed policy, else nothing at all; `chosen`: the filter
    by which the units were read.
    """
    parts = [unit.parts[part] for unit in units if len(unit.parts) > part]
    notes = Notes()
    for unit in units:
        notes.add(unit.notes)
    notes.warnings = list(dict.fromkeys(notes.warnings))  # of several units
    names = [name for name in parts[0].arms if name != LIVE]
    names = [name for name in learners if name in names]
    arms = {name: [each.arms[name] for each in parts] for name in parts[0].arms}
    started_live = sum(each.hits + each.misses for each in arms.get(LIVE, ()))
    if not started_live:
        arms.pop(LIVE, None)
    members = [sum(same) for same in zip(*(each.members for each in parts), strict=True)]
    bootstrap = Bootstrap(members)
    bootstrap.add({name: _groups(same) for name, same in arms.items()})
    bootstrap.add({NEVER: [0.0] * len(members)} if NEVER not in arms else {})
    against = against or (LIVE if LIVE in arms else FIXED if FIXED in arms else NEVER)
    truth = _truth(parts)
    policies = {
        name: _figures(name, learners.get(name, name), arms, bootstrap, against, truth)
        | _unsure(name, parts)
        for name in ([LIVE] if LIVE in arms else []) + names
    }
    found: dict[str, Any] = {
        "source": source,
        **truth,
        "workflow_groups": bootstrap.groups,
        "read": asdict(notes) | chosen.report_fields(),
        "contexts_beyond_limit": sum(unit.beyond for unit in units),
        "seconds": round(sum(unit.seconds for unit in units), 3),
        "against": against,
        "policies": policies,
        **_best(policies, bootstrap),
    }
    found |= left_out(parts, units) | _details(parts, list(policies))
    found["undecided"] = undecided(found)
    if nothing_to_earn(found) is not None:
        found |= _best({}, bootstrap)
    found["may_lead"] = may_lead(found)
    found["conclusion"] = conclusion(found)
    return found


def _unsure(name: str, parts: Sequence[PartSums]) -> dict[str, float]:
    """Return what of a policy's earnings is estimated, and how many guesses count as 0 ms."""
    return UnsureSums.of([each.unsure[name] for each in parts if name in each.unsure])._asdict()


def left_out(parts: Sequence[PartSums], units: Sequence[UnitSums]) -> dict[str, Any]:
    """Return what no figure has, and what figures rest on that was not recorded.

    `not_startable`: guesses that no policy could have started, in all and by reason. `unpriced`:
    guesses that count as 0 ms, because neither the log nor an option has their worth, nor
    is there an estimate; `unpriced_misses` of them are wrong. `estimated`: guesses that are judged
    by estimates, and those. `assumptions`: sentences, each with the number of guesses that rest on
    it. All but the first are of the whole history.
    """
    reasons: dict[str, int] = {}
    for part in parts:
        for reason, count in part.apart.reasons.items() if part.apart else ():
            reasons[reason] = reasons.get(reason, 0) + count
    basis = Basis()
    used: dict[Estimate, int] = {}
    for unit in units:
        basis.add(unit.unpriced, unit.assumed)
        for each in unit.estimated:
            used[each.estimate] = used.get(each.estimate, 0) + each.guesses
    estimated = [EstimatedGuesses(*each) for each in used.items()]
    for sentence, count in sentences(estimated).items():
        basis.assume(sentence, count)
    return {
        "not_startable": {
            "guesses": sum(reasons.values()), "reasons": dict(sorted(reasons.items())),
        },
        "unpriced": basis.unpriced,
        "unpriced_misses": sum(unit.unpriced_misses for unit in units),
        "estimated": _estimated(estimated),
        "assumptions": [
            {"assumed": sentence, "guesses": count}
            for sentence, count in sorted(basis.assumed.items())
        ],
    }  # fmt: skip


def _estimated(used: Sequence[EstimatedGuesses]) -> dict[str, Any]:
    """Return how many guesses are judged by estimates, and by which: those of most guesses."""
    means = [
        {
            "of": "gain" if each.estimate.correct else "cost",
            "tenant": each.estimate.tenant or None,
            "workflow_type": each.estimate.workflow_type or None,
            "tool": each.estimate.tool or None,
            "ms": each.estimate.ms,
            "recorded": each.estimate.recorded,
            "guesses": each.guesses,
        }
        for each in sorted(used, key=lambda each: -each.guesses)
    ]
    return {"guesses": sum(each.guesses for each in used), "means": means[:MOST_CONTEXTS]}


def _details(parts: Sequence[PartSums], names: Sequence[str]) -> dict[str, Any]:
    """Return what is shown of single contexts, of time, and of confidences."""
    drifts = [
        {"tenant": tenant, "path": path, "at": drift.at, "number": drift.number,
         "better": drift.better}
        for each in parts
        for tenant, path, drift in each.drifts
    ]  # fmt: skip
    bins = [
        {"count": each.count, "right": each.right,
         "confidence": each.confidence / each.count if each.count else None,
         "gain": each.gain, "cost": each.cost}
        for each in merged([each.bins for each in parts])
    ]  # fmt: skip
    return {
        "contexts": _contexts(parts, names),
        "drifts": drifts,
        "courses": timelines(parts, names),
        "bins": bins,
    }


def _groups(same: Sequence[ArmSums]) -> list[float]:
    return [sum(group) for group in zip(*(each.groups for each in same), strict=True)]


def _truth(parts: Sequence[PartSums]) -> dict[str, Any]:
    """Return what there was to earn."""
    there = [each for each in parts if each.predictions]
    bins: list[Bin] = merged([each.bins for each in parts])
    return {
        "outcomes": sum(each.predictions for each in parts),
        "right": sum(each.right for each in bins),
        # Predictions without a time have 0, which is no moment of any log.
        "first": min((each.first for each in there), default=0) or None,
        "last": max((each.last for each in there), default=0) or None,
        "best_fixed": sum(each.best for each in parts),
        "best_fixed_exact": all(each.exact for each in parts),
        "always": sum(each.always for each in parts),
        "never": 0.0,
        "at_stake": sum(each.gain + each.cost for each in bins),
        "contexts_known": sum(each.known for each in parts),
    }


def _figures(
    name: str,
    learner: str,
    arms: Mapping[str, Sequence[ArmSums]],
    bootstrap: Bootstrap,
    against: str,
    truth: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what one arm earned."""
    same = arms[name]
    utility = _utility(same)
    hits, misses = sum(each.hits for each in same), sum(each.misses for each in same)
    windows, settled = sum(each.windows for each in same), [n for a in same for n in a.settled]
    other = _utility(arms[against]) if against in arms else 0.0
    difference = bootstrap.difference(name, against, utility - other)
    interval = bootstrap.of(name, utility)
    modes = [sum(mode) for mode in zip(*(each.modes for each in same), strict=True)]
    nanoseconds = sum(each.nanoseconds for each in same)
    return {
        "learner": learner,
        "utility": utility,
        "interval": _ends(interval),
        "share_of_best_fixed": _ratio(utility, truth["best_fixed"]),
        "share_of_always": _ratio(utility, truth["always"]),
        "above_always": utility - truth["always"],
        "above_never": utility,
        "difference": difference.value,
        "difference_interval": _ends(difference),
        "success_rate": _ratio(hits, hits + misses),
        "recall": _ratio(hits, truth["right"]),
        "speculated": hits + misses,
        "hits": hits,
        "misses": misses,
        "saved": sum(each.saved for each in same),
        "wasted": sum(each.wasted for each in same),
        "time_in_band": _ratio(sum(each.in_band for each in same), windows),
        "oscillations": sum(each.turns for each in same),
        "convergence": median(settled) if settled and name != LIVE else None,
        "microseconds_per_update": round(nanoseconds / 1000 / max(1, truth["outcomes"]), 3),
        "modes": _modes(modes),
    }


def _modes(counts: Sequence[int]) -> dict[str, Any] | None:
    """Return the rates of each mode; None where modes were not counted."""
    if not any(counts):
        return None
    return {mode: each._asdict() for mode, each in rates(tuple(map(float, counts))).items()}


def _utility(same: Sequence[ArmSums]) -> float:
    return sum(each.saved - each.wasted for each in same)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0.0 else None


def _ends(interval: Interval) -> list[float] | None:
    return None if interval.low is None or interval.high is None else [interval.low, interval.high]


def _best(policies: Mapping[str, Mapping[str, Any]], bootstrap: Bootstrap) -> dict[str, Any]:
    """Return the policy that earned most, the next best, and how far apart they are."""
    falling = sorted(
        (name for name in policies if name != LIVE), key=lambda name: -policies[name]["utility"]
    )
    if not falling:
        return {"winner": None, "runner_up": None, "lead": None, "lead_interval": None}
    winner, runner_up = falling[0], falling[1] if len(falling) > 1 else None
    if runner_up is None:
        return {"winner": winner, "runner_up": None, "lead": None, "lead_interval": None}
    apart = policies[winner]["utility"] - policies[runner_up]["utility"]
    lead = bootstrap.difference(winner, runner_up, apart)
    return {
        "winner": winner, "runner_up": runner_up, "lead": apart, "lead_interval": _ends(lead),
    }  # fmt: skip


def _contexts(parts: Sequence[PartSums], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return one row for each context that is named, those with most predictions first."""
    rows: list[dict[str, Any]] = []
    for part in parts:
        for place, context in enumerate(part.contexts):
            arms = {}
            for name in names:
                own = part.arms[name].contexts[place]
                arms[name] = {
                    "utility": own.saved - own.wasted,
                    "share_of_best_fixed": _ratio(own.saved - own.wasted, context.best),
                    "hits": own.hits,
                    "misses": own.misses,
                    "saved": own.saved,
                    "wasted": own.wasted,
                    "success_rate": _ratio(own.hits, own.hits + own.misses),
                    "recall": _ratio(own.hits, context.right),
                    "time_in_band": _ratio(own.in_band, own.windows),
                    "oscillations": own.turns,
                    "convergence": own.since if name != LIVE else None,
                    "threshold": own.threshold if own.threshold >= 0.0 else None,
                }
            rows.append(
                {
                    "tenant": context.tenant, "path": context.path,
                    "outcomes": context.predictions, "right": context.right,
                    "not_startable": part.apart.contexts[place] if part.apart else 0,
                    "best_fixed": context.best,
                    "always": context.always, "policies": arms,
                }
            )  # fmt: skip
    rows.sort(key=lambda row: (-row["outcomes"], row["tenant"], row["path"]))
    return rows[:MOST_CONTEXTS]
