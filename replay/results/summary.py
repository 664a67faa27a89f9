"""What the sums of all units say together: figures by policy and context, and one sentence.

The report of a backtest, as plain data: the command prints it, `page` draws it. Money here is time:
utilities, gains and costs are in the unit of the events, milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any, Final

from learners.modes import rates
from replay.engine.engine import LIVE
from replay.engine.ground_truth import Bin, merged
from replay.predictions.assumptions import WHY, Basis
from replay.predictions.notes import Notes
from replay.predictions.unjoined import Filter, unjoined
from replay.results.bootstrap import Bootstrap, Interval
from replay.results.timelines import timelines
from replay.results.unit_results import ArmSums, PartSums, UnitSums

NEVER: Final = "never"
FIXED: Final = "fixed"
MOST_CONTEXTS: Final = 500
_HOUR_MS, _SECOND_MS = 3_600_000.0, 1_000.0


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
    notes.warnings = list(dict.fromkeys(notes.warnings))  # damage to a file is met in every unit
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
        for name in ([LIVE] if LIVE in arms else []) + names
    }
    found: dict[str, Any] = {
        "source": source,
        **truth,
        "workflow_groups": bootstrap.groups,
        "read": asdict(notes) | chosen.told(),
        "contexts_beyond_limit": sum(unit.beyond for unit in units),
        "seconds": round(sum(unit.seconds for unit in units), 3),
        "against": against,
        "policies": policies,
        **_best(policies, bootstrap),
    }
    found |= left_out(parts, units)
    found["conclusion"] = conclusion(found)
    return found | _details(parts, list(policies))


def left_out(parts: Sequence[PartSums], units: Sequence[UnitSums]) -> dict[str, Any]:
    """Return what no figure has, and what figures rest on that was not recorded.

    `not_startable`: guesses that no policy could have started, in all and by reason. `unpriced`:
    guesses that count as 0 ms, because neither the log nor an option says what they were worth.
    `assumptions`: sentences, each with the number of guesses that rest on it. The last two are of
    the whole history.
    """
    reasons: dict[str, int] = {}
    for part in parts:
        for reason, count in part.apart.reasons.items() if part.apart else ():
            reasons[reason] = reasons.get(reason, 0) + count
    basis = Basis()
    for unit in units:
        basis.add(unit.unpriced, unit.assumed)
    return {
        "not_startable": {
            "guesses": sum(reasons.values()), "reasons": dict(sorted(reasons.items())),
        },
        "unpriced": basis.unpriced,
        "assumptions": [
            {"assumed": sentence, "guesses": count}
            for sentence, count in sorted(basis.assumed.items())
        ],
    }  # fmt: skip


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
        "modes": {mode: each._asdict() for mode, each in rates(tuple(map(float, modes))).items()},
    }


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


def amount(value: float, *, sign: bool = False) -> str:
    """Return a time given in milliseconds as people read it."""
    size, plus = abs(value), "+" if sign else ""
    if size >= 10 * _HOUR_MS:
        return f"{value / _HOUR_MS:{plus},.1f} h"
    if size >= 10 * _SECOND_MS:
        return f"{value / _SECOND_MS:{plus},.0f} s"
    if size >= _SECOND_MS:
        return f"{value / _SECOND_MS:{plus}.1f} s"
    return f"{value:{plus}.3g} ms"


def _within(interval: Sequence[float] | None) -> str:
    if interval is None:
        return "too few workflows for an interval"
    return f"95 % interval {amount(interval[0])} to {amount(interval[1])}"


def conclusion(found: Mapping[str, Any]) -> str:
    """Return the verdict in one sentence, its uncertainty included, and what it does not cover."""
    return " ".join([_comparison(found), *caveats(found)])


def caveats(found: Mapping[str, Any]) -> list[str]:
    """Return in sentences what figures leave out, and what they rest on.

    `found`: `left_out`, and under `read`, where it is known, what was read.
    """
    said = []
    read = found.get("read") or {}
    apart = found["not_startable"]
    if count := apart["guesses"]:
        reasons = ", ".join(f"{WHY.get(name, name)}: {n:,}" for name, n in apart["reasons"].items())
        said.append(
            f"Not in these figures: {guesses(count)} that no policy could have started ({reasons})."
        )
    if found["unpriced"]:
        fields = "gain_ms and cost_ms"  # of events, and of completions
        if not read:
            fields += " (in outcomes: gain and cost)"
        elif not read.get("events"):
            fields = "gain and cost"
        said.append(
            f"No gain or cost is recorded for {guesses(found['unpriced'])}, which count as 0 ms: "
            f"log {fields}, or give --gain and --cost."
        )
    if (apart := unjoined(read)) is not None:
        said.append(apart)
    said += [
        f"Assumed for {guesses(each['guesses'])}: {each['assumed']}."
        for each in found["assumptions"]
    ]
    return said


def guesses(count: int) -> str:
    """Return a number of guesses in words."""
    return f"{count:,} guess" if count == 1 else f"{count:,} guesses"


def nothing_to_earn(found: Mapping[str, Any]) -> str | None:
    """Return why there is nothing to compare policies by; None where there is."""
    if not found["outcomes"] and found["not_startable"]["guesses"]:
        said = "No guess could have been started, so no policy would have earned anything"
        if "mode" in found["not_startable"]["reasons"]:
            said += "; --include mode counts those that only the mode held back"
        return said
    if found["unpriced"] and not found["at_stake"]:
        return "No gain and cost is recorded, so nothing says what any policy would have earned"
    return None


def _comparison(found: Mapping[str, Any]) -> str:
    """Return which policy earned most, and how surely."""
    policies, winner, against = found["policies"], found["winner"], found["against"]
    if winner is None:
        return "No policy was judged."
    if (nothing := nothing_to_earn(found)) is not None:
        return f"{nothing}."
    own = policies[winner]
    did = {LIVE: "what was done live", NEVER: "never starting anything"}.get(
        against, f"the policy {against}"
    )
    if winner == against:
        first = f"{winner} earned most: {amount(own['utility'])} ({_within(own['interval'])})"
    else:
        base = own["utility"] - own["difference"]
        percent = f", {own['difference'] / base:+.0%}" if base > 0 and against != NEVER else ""
        direction, ends = "more", own["difference_interval"]
        size: float = own["difference"]
        if size < 0:
            direction, size, ends = "less", -size, ends and [-ends[1], -ends[0]]
        first = (
            f"{winner} would have earned {amount(size)} {direction} than {did}{percent} "
            f"({_within(ends)})"
        )
        if ends is not None and ends[0] <= 0.0 <= ends[1]:
            first += ", which may be chance"
    return f"{first}; {_second(found)}"


def _second(found: Mapping[str, Any]) -> str:
    if found["runner_up"] is None:
        return "there was no other policy to compare."
    ends = found["lead_interval"]
    lead = f"the next best, {found['runner_up']}, earned {amount(found['lead'])} less"
    if ends is None:
        return f"{lead}."
    if ends[0] > 0.0:
        return f"{lead}, and that is no chance ({_within(ends)})."
    return f"{lead}, which may be chance ({_within(ends)})."
