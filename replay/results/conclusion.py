"""The conclusion of a backtest in sentences: which policy earned most, how surely, on what basis.

Utilities, gains and costs are in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from replay.engine.engine import LIVE
from replay.predictions.assumptions import WHY
from replay.predictions.unjoined import unjoined

NEVER: Final = "never"
MOST_NAMED: Final = 3
"""Policies that a sentence names at most."""
_HOUR_MS, _SECOND_MS = 3_600_000.0, 1_000.0


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
    sentences = []
    read = found.get("read") or {}
    apart = found["not_startable"]
    if count := apart["guesses"]:
        reasons = ", ".join(f"{WHY.get(name, name)}: {n:,}" for name, n in apart["reasons"].items())
        sentences.append(
            f"Not in these figures: {guesses(count)} that no policy could have started ({reasons})."
        )
    if found["unpriced"]:
        fields = "gain_ms and cost_ms"  # of events, and of completions
        if not read:
            fields += " (in outcomes: gain and cost)"
        elif not read.get("events"):
            fields = "gain and cost"
        else:
            fields += (
                " (the client logs the cost of each wrong guess that it starts; its option "
                "`exploration` starts some that were declined)"
            )
        sentences.append(
            f"No gain or cost is recorded for {guesses(found['unpriced'])}, which count as 0 ms: "
            f"log {fields}, or give --gain and --cost."
        )
    if (apart := unjoined(read)) is not None:
        sentences.append(apart)
    sentences += [
        f"Assumed for {guesses(each['guesses'])}: {each['assumed']}."
        for each in found["assumptions"]
    ]
    if (found.get("estimated") or {}).get("guesses"):
        sentences.append(
            "A wrong guess that was not started has no cost of its own in the log: the client's "
            "option `exploration` starts some, whose costs are measured, or --gain and --cost "
            "replace these means."
        )
    return sentences


def remark(found: Mapping[str, Any]) -> str:
    """Return what a heading of earnings adds where they are not all recorded; "" where they are.

    `found`: `summary.left_out`.
    """
    remarks = []
    if count := found["estimated"]["guesses"]:
        remarks.append(f"{count:,} guesses estimated")
    elif found["assumptions"]:
        remarks.append("assumed")
    if count := found["unpriced"]:
        remarks.append(f"{count:,} guesses at 0 ms")
    return f" ({', '.join(remarks)})" if remarks else ""


def guesses(count: int) -> str:
    """Return a number of guesses in words."""
    return f"{count:,} guess" if count == 1 else f"{count:,} guesses"


def nothing_to_earn(found: Mapping[str, Any]) -> str | None:
    """Return why there is nothing to compare policies by; None where there is."""
    if not found["outcomes"] and found["not_startable"]["guesses"]:
        sentence = "No guess could have been started, so no policy would have earned anything"
        if "mode" in found["not_startable"]["reasons"]:
            sentence += "; --include mode counts those that only the mode held back"
        return sentence
    if found["unpriced"] and not found["at_stake"]:
        return "No gain and cost is recorded, so it is unknown what any policy would have earned"
    reason: str | None = found.get("undecided")
    return reason


def _comparison(found: Mapping[str, Any]) -> str:
    """Return which policy earned most, and how surely."""
    policies, winner, against = found["policies"], found["winner"], found["against"]
    if (nothing := nothing_to_earn(found)) is not None:
        return f"{nothing}."
    if winner is None:
        return "No policy was judged."
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
    return f"{first}; {_second(found)}{_possible_winners(found)}"


def _possible_winners(found: Mapping[str, Any]) -> str:
    """Return which policies may be better than the winner if the estimates are wrong."""
    names = found["may_lead"]
    if not names:
        return ""
    shown = ["what was done live" if name == LIVE else name for name in names[:MOST_NAMED]]
    if len(names) > MOST_NAMED:
        shown.append(f"{len(names) - MOST_NAMED} more")
    others = " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
    if found["estimated"]["guesses"]:
        basis = "if the estimated gains and costs were half or twice as large"
    else:
        basis = "if the guesses that count as 0 ms were worth what others are"
    return f" But that is not sure: {basis}, {others} could have earned more."


def _second(found: Mapping[str, Any]) -> str:
    if found["runner_up"] is None:
        return "there was no other policy to compare."
    ends = found["lead_interval"]
    lead = f"the next best, {found['runner_up']}, earned {amount(found['lead'])} less"
    if ends is None:
        return f"{lead}."
    if ends[0] > 0.0:
        chance = "" if found["may_lead"] else ", and that is not chance"
        return f"{lead}{chance} ({_within(ends)})."
    return f"{lead}, which may be chance ({_within(ends)})."
