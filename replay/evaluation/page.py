"""The report of an evaluation as one file of HTML, of the parts that a backtest's is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from html import escape
from typing import Any, Final

from replay.evaluation.figures import Figures
from replay.evaluation.results import averaged, best_simple
from replay.files.output import Target, write_file
from replay.results.charts import Axis, ChartLine, chart
from replay.results.page import document, figure
from replay.results.parts import basis, section, table

_LEAST: Final = 20
"""Decisions of a bin whose share of right guesses is drawn."""
_SHARE: Final = partial("{:.1f}".format)

Found = Mapping[str, Any]


def write_evaluation(
    file: Target, found: Found, by_predictor: Mapping[str, Sequence[Figures]]
) -> None:
    """Write the report, whole or not at all. Raises `OSError`.

    `found`: the results; `by_predictor`: what they were made from.
    """
    write_file(file, evaluation_page(found, by_predictor))


def evaluation_page(found: Found, by_predictor: Mapping[str, Sequence[Figures]]) -> str:
    """Return the report."""
    drawn = {name: averaged(seeds) for name, seeds in by_predictor.items()}
    body = (
        _head(found)
        + f'<div class="charts">{_calibration(drawn)}{_coverage(drawn)}</div>'
        + _predictors(drawn)
        + _net_time(drawn, found["latency"])
        + _domains(drawn)
        + _basis(found)
    )
    return document(f"Evaluation: {found['source']}", body)


def _head(found: Found) -> str:
    exact = "" if found["exact_1"] is None else f"{found['exact_1']:.1%}"
    sentences = "".join(f'<p class="conclusion">{escape(each)}</p>' for each in found["conclusion"])
    seeds, simple = len(found["seeds"]), best_simple(found)
    best = 0.0 if simple is None else found["baselines"][simple]["exact_1"]
    kind = "sure" if (found["exact_1"] or 0.0) >= best else "worse"
    return (
        f'<section class="verdict {kind}"><h1>How often is the next call guessed right? '
        f"{_counted(found['runs'], 'run')}, {_counted(found['calls'], 'call')}, "
        f"{_counted(len(found['domains']), 'domain')}, {_counted(seeds, 'order')}</h1>"
        f'<p class="headline"><strong>{escape(found["predictor"])}</strong>'
        f"<strong>{exact}</strong><span>exact: name and all arguments, first guess</span></p>"
        f"{sentences}</section>"
    )


def _counted(number: int, name: str) -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def _calibration(drawn: Mapping[str, Figures]) -> str:
    lines = [ChartLine("calibrated", [(0.0, 0.0), (1.0, 1.0)], "ideal")]
    for place, (name, figures) in enumerate(drawn.items()):
        points = [
            (each["confidence"] / each["count"], each["right"] / each["count"])
            for each in figures["bins"]
            if each["count"] >= _LEAST
        ]
        lines.append(ChartLine(name, points, _kind(place), dots=place == 0))
    axes = Axis("confidence", 0.0, 1.0, _SHARE), Axis("right", 0.0, 1.0, _SHARE)
    return figure(
        "Calibration",
        chart(*axes, lines),
        "How often first guesses of a confidence were right. Below the dotted line a predictor is "
        "surer than it should be.",
        lines,
    )


def _coverage(drawn: Mapping[str, Figures]) -> str:
    lines = [
        ChartLine(name, figures["curve"], _kind(place))
        for place, (name, figures) in enumerate(drawn.items())
    ]
    longest = max((x for line in lines for x, _ in line.points), default=1.0)
    axes = (
        Axis("calls started early, share of all calls", 0.0, max(longest, 0.01), "{:.2f}".format),
        Axis("precision", 0.0, 1.0, _SHARE),
    )
    return figure(
        "Coverage against precision",
        chart(*axes, lines),
        "One threshold for all guesses, from high (left) to low; the first seed. Precision: share "
        "of what is started that is right.",
        lines,
    )


def _kind(place: int) -> str:
    return "c0 win" if place == 0 else f"c{place % 8}"


_COLUMNS: Final[Mapping[str, tuple[str, Callable[[float], str]]]] = {
    "name": ("name_1", "{:.1%}".format),
    "exact": ("exact_1", "{:.1%}".format),
    "first 2": ("exact_2", "{:.1%}".format),
    "first 3": ("exact_3", "{:.1%}".format),
    "covered at 85 %": ("covered_at_85", "{:.1%}".format),
    "ECE": ("ece", "{:.3f}".format),
    "Brier": ("brier", "{:.3f}".format),
    "log loss, bits": ("log_loss", "{:.3f}".format),
    "guess, µs": ("guess_us", "{:,.0f}".format),
    "learn, µs": ("learn_us", "{:,.0f}".format),
    "state, bytes": ("state_bytes", "{:,.0f}".format),
}
_BY_DOMAIN: Final = ("name", "exact", "first 3", "covered at 85 %", "ECE")


def _cells(figures: Figures, columns: Iterable[str]) -> list[str]:
    found = []
    for column in columns:
        key, write = _COLUMNS[column]
        found.append("" if figures[key] is None else write(figures[key]))
    return found


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _predictors(drawn: Mapping[str, Figures]) -> str:
    rows = [
        [
            name,
            *_cells(figures, _COLUMNS),
            _percent(figures["first_runs"]["exact_1"]),
            _percent(figures["repeats"]["exact_1"]),
        ]
        for name, figures in drawn.items()
    ]
    heads = ["predictor", *_COLUMNS, "exact, first run of a task", "exact, repeats"]
    return section("Predictors", table(heads, rows))


def _net_time(drawn: Mapping[str, Figures], latency: str) -> str:
    rows = []
    for name, figures in drawn.items():
        for ratio, saved in figures["net_time"].items():
            for tools, each in (("all", saved), ("read-only", saved["read_only"])):
                keys = ("started", "right", "tool_time_saved", "whole_time_saved", "net")
                rows.append([name, ratio, tools, *(_percent(each[key]) for key in keys)])
    heads = ["predictor", "cost / (cost + gain)", "tools", "started", "right", "tool time saved",
             "whole time saved", "net, of a perfect guesser's"]  # fmt: skip
    words = (
        '<p class="soft">With the thresholds that the default policy had learned by then. Started: '
        "share of all decisions; right: of those.</p>"
    )
    return section(f"Net time, by {latency} latencies", words + table(heads, rows, named=3))


def _domains(drawn: Mapping[str, Figures]) -> str:
    ratio = next(iter(next(iter(drawn.values()))["net_time"]))
    rows = []
    for domain in next(iter(drawn.values()))["domains"]:
        for name, figures in drawn.items():
            own = figures["domains"][domain]
            net = own["net_time"][ratio]["net"]
            calls = f"{own['calling_points']:,}"
            rows.append([domain, name, calls, *_cells(own, _BY_DOMAIN), _percent(net)])
    heads = ["domain", "predictor", "decisions with calls", *_BY_DOMAIN, f"net, r = {ratio}"]
    return section("Domains", table(heads, rows, named=2))


def _basis(found: Found) -> str:
    return basis(
        found,
        "Every decision was guessed first and learned afterwards, in the order of each seed, with "
        "a new predictor for each domain.",
    )
