"""The report of a backtest as one file of HTML: opens offline, asks nothing of anyone.

Its parts are functions that return HTML, so that other pages can be made of them. Not here: the
figures (`verdict`) and how lines are drawn (`charts`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, Final

import orjson

from replay.engine.engine import LIVE
from replay.files.output import Target, write_file
from replay.results.charts import Axis, ChartLine, Mark, chart, legend
from replay.results.conclusion import NEVER, amount, caveats, nothing_to_earn
from replay.results.summary import FIXED

_FOLDER: Final = Path(__file__).parent
MOST_BARS: Final = 24
MOST_LINES: Final = 6
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
)
"""The browser itself refuses whatever would leave the page."""

Found = Mapping[str, Any]


def write_page(file: Target, found: Found) -> None:
    """Write the report of a backtest, whole or not at all. Raises `OSError`."""
    write_file(file, page(found))


def page(found: Found) -> str:
    """Return the report of a backtest."""
    body = verdict(found) + charts(found) + contexts() + read(found)
    return document(f"Backtest: {found['source']}", body, found)


def document(title: str, body: str, found: Found | None = None) -> str:
    """Return a whole page around a body. `found`: what its table of contexts is made of, if any."""
    style = (_FOLDER / "page.css").read_text(encoding="utf-8")
    table = "" if found is None else _table_script(found)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title><style>{style}</style>'
        f"</head><body>{body}{table}</body></html>\n"
    )


def _table_script(found: Found) -> str:
    script = (_FOLDER / "page.js").read_text(encoding="utf-8")
    data = {
        "against": found["against"],
        "winner": found["winner"],
        "policies": list(found["policies"]),
        "known": found["contexts_known"],
        "contexts": found["contexts"],
    }
    # A path may hold anything: nothing of it may end the script.
    embedded = orjson.dumps(data).decode().replace("<", "\\u003c")
    return f'<script type="application/json" id="data">{embedded}</script><script>{script}</script>'


def verdict(found: Found) -> str:
    """Return the head of the page: the best policy, its lead and its interval, and all policies."""
    if (nothing := nothing_to_earn(found)) is not None:
        return _head(found, "unsure", f"<span>{escape(nothing)}</span>")
    winner, against = found["winner"], found["against"]
    own = found["policies"][winner]
    ends = own["difference_interval"]
    unsure = ends is None or ends[0] <= 0.0 <= ends[1] or bool(found["may_lead"])
    kind = "unsure" if unsure else "worse" if own["difference"] < 0.0 else "sure"
    if winner == against:
        ends, big, words = own["interval"], amount(own["utility"]), "earned most"
    else:
        big = amount(own["difference"], sign=True)
        words = f"against {_called(against)}"
    spread = f"{amount(ends[0])} to {amount(ends[1])}" if ends else "unknown: too few workflows"
    headline = (
        f"<strong>{escape(winner)}</strong><strong>{escape(big)}</strong>"
        f"<span>{escape(words)} (95 % interval: {escape(spread)})</span>"
    )
    return _head(found, kind, headline)


def _head(found: Found, kind: str, headline: str) -> str:
    """Return the head of the page around its headline."""
    return (
        f'<section class="verdict {kind}"><h1>What would another policy have saved? '
        f"{escape(_when(found))}</h1>"
        f'<p class="headline">{headline}</p>'
        f'<p class="conclusion">{escape(found["conclusion"])}</p>{bars(found)}{_estimates(found)}'
        '<p class="soft">Earned: time saved by right guesses minus time wasted by wrong ones. '
        "Thin lines: 95 % intervals, by bootstrap over workflows. Hindsight: the best fixed "
        "threshold of each context, which cannot be known beforehand.</p></section>"
    )


def _estimates(found: Found) -> str:
    """Return how many guesses are judged by estimates, under the bars that rest on them."""
    count = found["estimated"]["guesses"]
    if not count:
        return ""
    return (
        f'<p class="soft">{count:,} of {found["outcomes"]:,} predictions log no gain or cost of '
        "their own; they are judged by means of what is recorded.</p>"
    )


def _called(against: str) -> str:
    return {LIVE: "what was done live", NEVER: "starting nothing"}.get(against, against)


def _when(found: Found) -> str:
    count = f"{found['outcomes']:,} predictions"
    if not found["last"]:
        return count
    if not found["first"]:  # some have no time
        return f"{count}, until {_day(found['last'])} UTC"
    return f"{count}, {_day(found['first'])} to {_day(found['last'])} UTC"


def _day(at: float) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def bars(found: Found, ideal_name: str = "hindsight") -> str:
    """Return a bar for each policy, those that earned most first, then the best in hindsight.

    Of `found` it reads `policies` (`utility`, `interval`), `winner` and `best_fixed`.
    """
    policies = found["policies"]
    falling = sorted(policies, key=lambda name: -policies[name]["utility"])
    shown = falling[:MOST_BARS]
    tops = [found["best_fixed"], *(policies[n]["utility"] for n in shown),
            *(policies[n]["interval"][1] for n in shown if policies[n]["interval"])]  # fmt: skip
    high = max(*tops, 1e-9)
    lowest = min(0.0, *(policies[name]["utility"] for name in shown))
    low = max(lowest, -0.25 * high)
    rows = [_bar(name, policies[name], low, high, winner=name == found["winner"]) for name in shown]
    ideal = {"utility": found["best_fixed"], "interval": None}
    rows.append(_bar(ideal_name, ideal, low, high, kind="ideal"))
    more = f'<p class="soft">and {len(falling) - len(shown)} more</p>' * (len(falling) > len(shown))
    return f'<div class="bars">{"".join(rows)}{more}</div>'


def _bar(
    name: str, figures: Found, low: float, high: float, *, winner: bool = False, kind: str = ""
) -> str:
    span = high - low

    def at(value: float) -> float:
        return round(100.0 * (min(max(value, low), high) - low) / span, 2)

    utility, ends, zero = figures["utility"], figures["interval"], at(0.0)
    kind = kind or ("winner" if winner else name if name == LIVE else "")
    kind += " negative" if utility < 0.0 else ""
    left, right = sorted((zero, at(utility)))
    spread = ""
    if ends is not None and ends[1] > low:
        begin, end = at(ends[0]), at(ends[1])
        spread = f'<span class="spread" style="left:{begin}%;width:{end - begin:.2f}%"></span>'
    return (
        f'<div class="bar {kind}"><span class="name" title="{escape(name)}">{escape(name)}</span>'
        f'<span class="track"><span class="fill" style="left:{left}%;width:{right - left:.2f}%">'
        f'</span><span class="zero" style="left:{zero}%"></span>{spread}</span>'
        f'<span class="earned">{escape(amount(utility))}</span></div>'
    )


def charts(found: Found) -> str:
    """Return the charts."""
    if not found["courses"]["at"] or not found["outcomes"]:
        return ""
    return (
        f'<div class="charts">{gained(found)}{thresholds(found)}{reliability(found)}'
        f"{precision(found)}</div>"
    )


def kinds(found: Found) -> dict[str, str]:
    """Return which policies get lines, and in which colour: the winner first, live, the best."""
    policies = found["policies"]
    falling = sorted(
        (n for n in policies if n != LIVE), key=lambda name: -policies[name]["utility"]
    )
    shown = falling[:MOST_LINES]
    if found["against"] in falling and found["against"] not in shown:
        shown[-1:] = [found["against"]]
    chosen = {name: f"c{place}" for place, name in enumerate(shown)}
    if shown:
        chosen[shown[0]] += " win"
    if LIVE in policies:
        chosen[LIVE] = "live"
    return chosen


def figure(title: str, drawn: str, caption: str, lines: Sequence[ChartLine] = ()) -> str:
    """Return a figure: title, what is drawn, what its lines are called, and a caption."""
    return (
        f"<figure><h2>{escape(title)}</h2>{drawn}{legend(lines) if lines else ''}"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _time_axis(found: Found) -> Axis:
    courses = found["courses"]
    at = courses["at"]
    if not courses["timed"]:
        return Axis("predictions", 0.0, at[-1], lambda value: f"{value:,.0f}")
    first, last = at[0], at[-1]
    form = "%H:%M" if last - first < 2 * 86_400_000 else "%m-%d"

    def write(value: float) -> str:
        return datetime.fromtimestamp(value / 1000, UTC).strftime(form)

    ticks = [first + (last - first) * place / 4 for place in range(5)]
    return Axis("time (UTC)", first, last, write, ticks)


def _courses(found: Found, what: str) -> list[ChartLine]:
    """Return a line per policy, the winner's last, so that it lies on top."""
    at, lines = found["courses"]["at"], []
    for name, kind in kinds(found).items():
        values = found["courses"]["policies"][name][what]
        points = [(x, y) for x, y in zip(at, values, strict=True) if y is not None]
        if points:
            lines.append(ChartLine(name, points, kind))
    return lines


def gained(found: Found) -> str:
    """Return the chart of what policies earned so far."""
    lines = _courses(found, "gained")
    highest = max((y for line in lines for _, y in line.points), default=0.0)
    lowest = min((y for line in lines for _, y in line.points), default=0.0)
    up = Axis("earned", max(min(0.0, lowest), -highest or lowest), max(highest, 1e-9), amount)
    drawn = chart(_time_axis(found), up, lines[::-1], _marks(found))
    return figure("Earned so far", drawn, "The steeper, the more was earned just then.", lines)


def thresholds(found: Found) -> str:
    """Return the chart of the mean threshold in force, with the drifts that were found."""
    lines = _courses(found, "threshold")
    values = [min(y, 1.0) for line in lines for _, y in line.points] or [0.0, 1.0]
    low, high = max(0.0, min(values) - 0.05), min(1.0, max(values) + 0.05)
    marks = _marks(found)
    drawn = chart(
        _time_axis(found), Axis("threshold", low, high, "{:.2f}".format), lines[::-1], marks
    )
    words = "Mean threshold in force, over all contexts."
    if marks:
        words += " Dashed: a drift was found, guesses became better or worse than they claim."
    return figure("Thresholds", drawn, words, lines)


def _marks(found: Found) -> list[Mark]:
    timed = found["courses"]["timed"]
    return [
        Mark(
            each["at"] if timed else each["number"],
            f"{each['path']}: {'better' if each['better'] else 'worse'} than before, "
            + (_day(each["at"]) if timed else f"at prediction {each['number']:,}"),
        )
        for each in found["drifts"][:40]
    ]


def reliability(found: Found) -> str:
    """Return the reliability diagram: how often guesses of a confidence were right."""
    points = []
    for begin in range(0, 100, 5):
        some = found["bins"][begin : begin + 5] + (found["bins"][100:] if begin == 95 else [])
        count = sum(each["count"] for each in some)
        if count >= 5:
            confidence = sum((each["confidence"] or 0.0) * each["count"] for each in some) / count
            points.append((confidence, sum(each["right"] for each in some) / count))
    share = partial("{:.1f}".format)
    lines = [
        ChartLine("honest", [(0.0, 0.0), (1.0, 1.0)], "ideal"),
        ChartLine("these guesses", points, "c1", dots=True),
    ]
    drawn = chart(Axis("confidence", 0.0, 1.0, share), Axis("right", 0.0, 1.0, share), lines)
    return figure(
        "Confidence against truth", drawn,
        "Below the dotted line: the predictor is surer than it should be.", lines,
    )  # fmt: skip


def precision(found: Found) -> str:
    """Return precision, recall and earnings of one fixed threshold for all."""
    rows = []
    count = right = 0
    earned = 0.0
    for place in range(len(found["bins"]) - 1, -1, -1):
        each = found["bins"][place]
        count, right = count + each["count"], right + each["right"]
        earned += each["gain"] - each["cost"]
        if count:
            rows.append((place / 100, right / count, right / max(1, found["right"]), earned))
    rows.reverse()
    top = max((row[3] for row in rows), default=0.0)
    lines = [
        ChartLine("precision: right among started", [(t, p) for t, p, _, _ in rows], "c1"),
        ChartLine("recall: started among right", [(t, r) for t, _, r, _ in rows], "c2"),
    ]
    words = "What one fixed threshold for all contexts would have done."
    if top > 0.0:
        best = next(row[0] for row in rows if row[3] == top)
        kept = [(t, e / top) for t, _, _, e in rows if e >= 0.0]
        lines.append(ChartLine(f"earned (1 = {amount(top)}, at {best:.2f})", kept, "c0 win"))
    share = partial("{:.1f}".format)
    drawn = chart(Axis("threshold", 0.0, 1.0, share), Axis("share", 0.0, 1.0, share), lines)
    return figure("Precision and recall", drawn, words, lines)


def contexts() -> str:
    """Return the table of contexts, which the page's script fills, sorts and filters."""
    return (
        '<section><h2>Contexts</h2><div class="controls"><label>Policy '
        '<select id="policy"></select></label><label>Filter <input id="filter" type="search" '
        'placeholder="refund retail"></label><span class="soft" id="shown"></span></div>'
        '<div class="scroll"><table id="contexts"><tbody></tbody></table></div>'
        "<noscript>The table needs scripts; --csv has the same rows.</noscript></section>"
    )


def read(found: Found) -> str:
    """Return what was read, and what of it was left out."""
    notes = dict(found["read"])
    notes["unmatched"] -= notes["not_guessed"]
    counts = ", ".join(
        f"{notes[name]:,} {name.replace('_', ' ')}"
        + (" in the whole log" if name in notes.get("whole_log", ()) else "")
        for name in ("records", "events", "duplicates", "not_guessed", "unmatched", "unresolved",
                     "refused", "filtered")
        if notes[name]
    )  # fmt: skip
    remarks = [*caveats(found), *notes["warnings"], *notes["named"]]
    lines = "".join(f"<li>{escape(each)}</li>" for each in remarks)
    against = {LIVE: "what executors did live", FIXED: "the fixed threshold", NEVER: "nothing"}
    compared = str(against.get(found["against"], found["against"]))
    return (
        f'<section class="soft"><h2>What was read</h2><p>{escape(found["source"])}: {counts}. '
        f"Compared with {escape(compared)}. Every policy was "
        "asked before the truth was known and learned it when it came, in the log's order.</p>"
        f"<ul>{lines}</ul></section>"
    )
