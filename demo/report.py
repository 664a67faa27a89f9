"""Renders the demo's report as one HTML file, from components of the backtest's report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import ceil, floor, isinf, log10
from typing import Any, Final

from demo.accounting import FIXED_THRESHOLD
from demo.comparison import LEARNED
from demo.invariants import Invariant
from demo.memory_section import memory_section
from replay.files.output import Target, write_file
from replay.results.charts import Axis, ChartLine, Column, Mark, chart, legend, nice_ticks
from replay.results.conclusion import amount, caveats
from replay.results.page import bars, document, figure, reliability

CONTEXTS_SHOWN: Final = 6
"""Contexts that are shown at once; the others unfold."""
SLICES: Final = 24
"""Columns of a chart of hits and misses."""
COLOURS: Final = {LEARNED: "c0 win", "hindsight": "ideal", "always": "c1", "never": "c5"}

Found = Mapping[str, Any]


def write_report(file: Target, found: Found) -> None:
    """Write the page, whole or not at all. Raises `OSError`.

    `found`: what `comparison.compare` returns, with `drift_at` (seconds, None: none),
    `latencies_ms`, `reads_us`, `invariants`, `versions` and `settings`; `memory`, if there is
    one, of `demo.memory`.
    """
    write_file(file, page(found))


def page(found: Found) -> str:
    """Return the page."""
    broken = any(each.broken for each in found["invariants"])
    parts = [verdict(found), course(found), contexts(found), trust(found), surroundings(found)]
    # A violated invariant makes the verdict unreliable, so it comes first.
    parts.insert(0 if broken else 4, checks(found))
    if "memory" in found:
        parts.insert(-1, memory_section(found["memory"]))
    body = "".join(parts)
    return document("Headstart demo: what learned thresholds were worth", body)


def verdict(found: Found) -> str:
    """Return the headline: the best policy, its lead with an interval, and all policies."""
    ends = found["lead_interval"]
    unsure = ends is None or ends[0] <= 0.0
    kind = "unsure" if unsure else "sure" if found["winner"] == LEARNED else "worse"
    title = (
        f"Headstart demo: {found['predictions']:,} guessed tool calls in "
        f"{found['workflows']:,} workflows, each judged under every policy"
    )
    won = f"{_title(found['winner'])} won by {amount(found['lead'])}"
    other = _policy_name(found["against"]) + ", the next best" * (found["winner"] == LEARNED)
    ideal = f"hindsight {constant(found)}"
    return (
        f'<section class="verdict {kind}"><h1>{escape(title)}</h1>'
        f'<p class="headline"><strong>{escape(won)}</strong>'
        f"<span>over {escape(other)}{escape(interval(ends))}</span></p>"
        f'<p class="conclusion">{escape(sentence(found))}</p>{bars(found, ideal)}'
        '<p class="soft">Bars: time that right guesses saved minus time that wrong ones wasted. '
        "Thin lines: 95 % intervals, by bootstrap over workflows. Dashed: the one threshold for "
        "all contexts that earned most, which is only known in hindsight. No tool was called: the "
        "times of calls are accounted, not slept.</p></section>"
    )


def sentence(found: Found) -> str:
    """Return the verdict in one sentence, its uncertainty included."""
    policies, winner, against = found["policies"], found["winner"], found["against"]
    ends, own = found["lead_interval"], policies[LEARNED]
    chance = ", which may be chance" if ends is None or ends[0] <= 0.0 else ""
    text = (
        f"{_title(winner)} earned {amount(policies[winner]['utility'])}, {amount(found['lead'])} "
        f"more than {_policy_name(against)}{interval(ends)}{chance}"
    )
    rest = [
        f"{_policy_name(name)} {_earned(each['utility'])}"
        for name, each in policies.items()
        if name not in (winner, against)
    ]
    text += f"; {', '.join(rest)}."
    if own["hit_rate"] is not None:
        text += (
            f" Of {own['hits'] + own['misses']:,} guesses that were started "
            f"{own['hit_rate']:.0%} were right."
        )
    return " ".join([text, _hindsight(found), *caveats(found)])


def _earned(utility: float) -> str:
    if not utility:
        return "nothing"
    return f"{'lost' if utility < 0 else 'earned'} {amount(abs(utility))}"


def _hindsight(found: Found) -> str:
    gap = found["best_fixed"] - found["policies"][LEARNED]["utility"]
    what = f"The best constant in hindsight, {constant(found)}, "
    if gap < 0.0:
        return f"{what}would have earned {amount(-gap)} less than was learned."
    ends = found["behind_interval"]
    chance = " That may be chance." if ends is not None and ends[0] <= 0.0 <= ends[1] else ""
    return f"{what}would have earned {amount(gap)} more than was learned.{chance}"


def interval(ends: Sequence[float] | None) -> str:
    """Return an interval in words, in brackets."""
    if ends is None:
        return " (too few workflows for an interval)"
    return f" (95 % interval: {amount(ends[0])} to {amount(ends[1])})"


def constant(found: Found) -> str:
    """Return the best constant as people read it."""
    return "never start" if isinf(found["best_constant"]) else f"{found['best_constant']:.2f}"


def _title(name: str) -> str:
    text = _policy_name(name)
    return text[0].upper() + text[1:]


def _policy_name(name: str) -> str:
    return {
        LEARNED: "learned thresholds",
        "always": "starting every guess",
        "never": "starting none",
    }.get(name, f"a {name} threshold")


def course(found: Found) -> str:
    """Return how it went over time."""
    if not found["at"]:
        return ""
    return f'<div class="charts">{gained(found)}{hit_rates(found)}</div>'


def trust(found: Found) -> str:
    """Return how far confidences can be trusted, and how fast it all was."""
    if not found["at"]:
        return ""
    drawn = reliability(found) + latency(found) + reading(found)
    return f'<div class="charts">{drawn}</div>'


def _time(found: Found) -> Axis:
    return Axis("seconds", 0.0, found["at"][-1], "{:g}".format)


def _drift(found: Found) -> list[Mark]:
    at = found["drift_at"]
    return [] if at is None else [Mark(at, "the world changed: other tools follow each other")]


def gained(found: Found) -> str:
    """Return the chart of what policies earned so far."""
    names = {"hindsight": "best constant, in hindsight"}
    lines = [
        ChartLine(names.get(name, name), list(zip(found["at"], course, strict=True)),
             COLOURS.get(name, "c2"))
        for name, course in found["gained"].items()
    ]  # fmt: skip
    values = [value for course in found["gained"].values() for value in course]
    high = max(*values, 1e-9)
    up = Axis("earned", max(min(0.0, *values), -high), high, amount)
    words = "The steeper, the more was earned just then."
    if min(values) < up.low:
        words += " What leaves the picture below lost more than it can show."
    if found["drift_at"] is not None:
        words += " Dashed: the world changed in mid-run, and thresholds had to be learned again."
    drawn = chart(_time(found), up, lines[::-1], _drift(found))
    return figure("Earned so far", drawn, words, lines)


def hit_rates(found: Found) -> str:
    """Return the chart of how many started guesses were right."""
    lines = [
        ChartLine(f"{name}: right", [(x, y) for x, y in zip(found["at"], rates, strict=True)
                                if y is not None], kind)
        for (name, rates), kind in zip(found["hit_rates"].items(), ("c0 win", "c1"), strict=True)
    ]  # fmt: skip
    up = Axis("share right", 0.0, 1.0, "{:.0%}".format)
    return figure(
        "Hit rate", chart(_time(found), up, lines[::-1], _drift(found)),
        "Right guesses among those started, over the last few seconds.", lines,
    )  # fmt: skip


def contexts(found: Found) -> str:
    """Return a chart for each context: its threshold over time, hits and misses under it."""
    if not found["contexts"]:
        return ""
    drawn = [_context(found, each) for each in found["contexts"]]
    first, rest = "".join(drawn[:CONTEXTS_SHOWN]), drawn[CONTEXTS_SHOWN:]
    more = ""
    if rest:
        more = (
            f"<details><summary>The other {len(rest)} contexts</summary>"
            f'<div class="charts">{"".join(rest)}</div></details>'
        )
    lines = [
        ChartLine("learned threshold", [], "c0 win"),
        ChartLine(f"{FIXED_THRESHOLD:.2f}", [], "ideal"),
    ]
    return (
        "<section><h2>What was learned: one threshold per context</h2><p>A guess is started where "
        "its confidence reaches the line. Columns under it: guesses started meanwhile, "
        '<span class="up">upwards right</span>, <span class="down">downwards wrong</span>. '
        f"Where nothing is known it is {FIXED_THRESHOLD:.2f}; a new context begins with what those "
        f"above it have learned.</p>{legend(lines)}"
        f'</section><div class="charts">{first}</div>{more}'
    )


def _context(found: Found, own: Found) -> str:
    decisions = own["decisions"]
    used = [(at, threshold) for at, threshold, _, _ in decisions if threshold is not None]
    values = [FIXED_THRESHOLD, *(value for _, value in used)]
    low, high = max(0.0, min(values) - 0.03), min(1.0, max(values) + 0.03)
    strip = 0.45 * (high - low)
    across = _time(found)
    lines = [
        ChartLine(f"fixed {FIXED_THRESHOLD:.2f}", [(0.0, FIXED_THRESHOLD), (across.high,
             FIXED_THRESHOLD)], "ideal"),
        ChartLine("threshold", _steps(used), "c0 win"),
    ]  # fmt: skip
    up = Axis("threshold", low - strip, high, "{:.2f}".format, nice_ticks(low, high))
    columns = _columns(decisions, across.high, low - strip, low - 0.05 * (high - low))
    path = " / ".join(part.partition("=")[2] for part in own["path"].split("/"))
    right = "" if own["hit_rate"] is None else f", {own['hit_rate']:.0%} right"
    return figure(
        path, chart(across, up, lines, _drift(found), columns),
        f"{own['predictions']:,} guesses, {own['hits'] + own['misses']:,} started{right}; earned "
        f"{amount(own['utility'])}.",
    )  # fmt: skip


def _steps(used: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the corners of a step function, at most some hundreds."""
    thinned = used[:: max(1, len(used) // 200)]
    found: list[tuple[float, float]] = []
    for at, value in thinned:
        if found:
            found.append((at, found[-1][1]))
        found.append((at, value))
    return found


def _columns(
    decisions: Iterable[tuple[float, float | None, bool, bool]], end: float, low: float, high: float
) -> list[Column]:
    hits, misses = [0] * SLICES, [0] * SLICES
    for at, _, started, correct in decisions:
        if started:
            (hits if correct else misses)[min(SLICES - 1, int(SLICES * at / max(end, 1e-9)))] += 1
    most = max(*hits, *misses, 1)
    middle, half = (low + high) / 2, (high - low) / 2
    width = end / SLICES
    return [
        Column((place * width, (place + 0.85) * width), (middle, middle + sign * half * n / most),
               f"{n} {word}", kind)
        for counts, sign, word, kind in ((hits, 1, "right", "hit"), (misses, -1, "wrong", "miss"))
        for place, n in enumerate(counts)
        if n
    ]  # fmt: skip


def latency(found: Found) -> str:
    """Return the histogram of emit() until the changed threshold is in every reader's reach."""
    return _histogram(
        "From an outcome to the threshold it changed", found["latencies_ms"], "ms",
        "From emit() of an outcome until Redis announced a threshold that knows it.",
    )  # fmt: skip


def reading(found: Found) -> str:
    """Return the histogram of reads."""
    return _histogram(
        "Reading a threshold", found["reads_us"], "µs",
        "Thresholds.get() of a known context, in the executor's own process.",
    )  # fmt: skip


def _histogram(title: str, values: Sequence[float], unit: str, words: str) -> str:
    """Return a histogram over a logarithmic axis, ten columns to each power of ten."""
    there = sorted(max(value, 0.01) for value in values)
    if len(there) < 2:
        return ""
    middle, late, last = (_quantile(there, share) for share in (0.5, 0.99, 0.999))
    low, high = floor(log10(there[0])), max(floor(log10(there[0])) + 1, ceil(log10(last)))
    tenths = Counter(min(floor(10 * log10(value)), 10 * high - 1) for value in there)
    across = Axis(f"{unit}, logarithmic", low, high, lambda power: f"{10.0**power:,g}",
                  list(range(low, high + 1)))  # fmt: skip
    columns = [
        Column(((tenth + 0.05) / 10, (tenth + 0.95) / 10), (0.0, count),
               f"{10 ** (tenth / 10):.3g} to {10 ** ((tenth + 1) / 10):.3g} {unit}: {count:,}")
        for tenth, count in sorted(tenths.items())
    ]  # fmt: skip
    marks = [Mark(log10(middle), f"half within {middle:.3g} {unit}"),
             Mark(log10(late), f"99 % within {late:.3g} {unit}")]  # fmt: skip
    up = Axis("count", 0.0, max(tenths.values()), "{:,.0f}".format)
    return figure(
        title, chart(across, up, [], marks, columns),
        f"{words} {len(there):,} of them; half within {middle:,.3g} {unit}, 99 % within "
        f"{late:,.3g} {unit} (dashed); the slowest took {there[-1]:,.0f} {unit}.",
    )  # fmt: skip


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def checks(found: Found) -> str:
    """Return the invariants, and how each was checked."""
    invariants: Sequence[Invariant] = found["invariants"]
    hold = not any(each.broken for each in invariants)
    title = (
        "Nothing was lost, nothing counted twice: how that is known"
        if hold
        else "Something that must hold does not"
    )
    return (
        f'<section{"" if hold else " class=broken"}><h2>{title}</h2><div class="scroll">'
        '<table class="words"><thead><tr><th></th><th>what must hold</th><th>found</th>'
        f"<th>how it was checked</th></tr></thead><tbody>{''.join(map(_check, invariants))}</tbody>"
        "</table></div></section>"
    )


def _check(each: Invariant) -> str:
    kind, word = ("down", "broken") if each.broken else ("up", "holds")
    return (
        f'<tr><td class="{kind}">{word}</td><td>{escape(each.name)}</td>'
        f"<td>{escape(each.broken[0] if each.broken else each.found)}</td>"
        f"<td>{escape(each.how)}</td></tr>"
    )


def surroundings(found: Found) -> str:
    """Return versions and settings."""

    def listed(pairs: Mapping[str, object]) -> str:
        return "".join(
            f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>" for name, value in pairs.items()
        )

    return (
        '<section class="soft"><h2>Versions and settings</h2><dl class="pairs">'
        f"{listed(found['settings'])}{listed(found['versions'])}</dl></section>"
    )
