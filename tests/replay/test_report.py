"""Grids, intervals, verdicts and the page: what people read is what was found."""

from __future__ import annotations

import csv
import re
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.experiments import assignment
from headstart.keys import context_paths
from learners.outcome import Outcome
from learners.registry import policy
from replay.engine.accumulators import GROUPS
from replay.engine.engine import BacktestEngine
from replay.engine.split_sums import Split
from replay.predictions.notes import Notes
from replay.predictions.outcomes_file import ROOT
from replay.predictions.policy_grid import TooMany, check, chosen, expand
from replay.predictions.what_if import read_scales
from replay.results.bootstrap import Bootstrap
from replay.results.charts import nice_ticks
from replay.results.conclusion import amount
from replay.results.csv import write_csv
from replay.results.experiments import WrongShares, outcome_of, read_arms
from replay.results.page import page, write_page
from replay.results.summary import report
from replay.results.unit_results import unit_sums
from tests.browsing import look, needs_browser


def found(path: str = "refund", names: tuple[str, ...] = ("hops", "td"), n: int = 600) -> Any:
    """The report of a world whose predictor is too sure of itself."""
    draw, judge = Random(3), BacktestEngine({name: policy(name) for name in names}, live=True)
    for number in range(n):
        p = draw.random()
        chain = judge.chain("acme", (ROOT, *context_paths(path, {"domain": "d"}.get)))
        judge.judge(
            chain,
            Outcome(p, draw.random() < p * p, speculated=p > 0.95, gain=400.0, cost=600.0,
                    timestamp=1_750_000_000_000 + 60_000 * number),
            number // 4 % GROUPS,
        )  # fmt: skip
    judge.flush()
    units = [unit_sums(0, judge, Notes(), 0.0)]
    return report("a test", {name: name for name in names}, units)


def test_a_grid_is_expanded() -> None:
    assert expand("ema:alpha=.1..0.3x3,target=.9") == [
        "ema:alpha=0.1,target=.9", "ema:alpha=0.2,target=.9", "ema:alpha=0.3,target=.9"
    ]  # fmt: skip
    assert expand("ema:window=10..30x3") == ["ema:window=10", "ema:window=20", "ema:window=30"]
    assert len(chosen(["td"], ["ema:alpha=.05..0.5x8", "ema:alpha=.05..0.5x8"])) == 9


@pytest.mark.parametrize(
    "grid", ["ema", "ema:alpha=.5", "ema:alpha=.1..x3", "ema:alpha=.1..0.5x1", "ema:alpha=a..bx3"]
)
def test_invalid_grids(grid: str) -> None:
    with pytest.raises(ValueError, match="grid"):
        expand(grid)


def test_wrong_policies_are_answered_with_what_was_meant() -> None:
    with pytest.raises(LookupError, match=r"no policy 'hop'.*did you mean hops"):
        check("hop:keep=.9")
    with pytest.raises(ValueError, match="target must be 0 to 1"):
        chosen(["ema:target=7"])
    with pytest.raises(TooMany):
        chosen([], ["ema:alpha=0..1x150,target=0..1x150"])


def test_scales() -> None:
    scales = read_scales(["2"], ["search=3", "0.5"])
    judged = Outcome(0.5, True, gain=10.0, cost=10.0)
    assert (scales.applied(judged, "search").gain, scales.applied(judged, "search").cost) == (
        20,
        30,
    )
    assert scales.applied(judged, None).cost == 5
    with pytest.raises(ValueError, match="--gain-scale x=-1"):
        read_scales(["x=-1"], [])


def test_an_interval_covers_and_pairs() -> None:
    draw = Random(1)
    one = [draw.gauss(1.0, 3.0) for _ in range(200)]
    drawn = Bootstrap([1] * 200 + [0] * 5)
    drawn.add({"one": [*one, *[9.9] * 5], "more": [*(x + 0.1 for x in one), *[9.9] * 5]})
    low, high = drawn.of("one", sum(one))[1:]
    assert low is not None
    assert high is not None
    assert low < sum(one) < high
    apart = drawn.difference("more", "one", 20.0)
    assert apart.low == pytest.approx(20.0)  # each pair differs by the same, whatever is drawn
    few = Bootstrap([1, 1, 0])
    few.add({"one": [1.0, 2.0, 0.0]})
    assert few.of("one", 3.0) == (3.0, None, None)


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9))
def test_ticks_are_few_and_within(low: float, span: float) -> None:
    ticks = nice_ticks(low, low + span)
    assert len(ticks) <= 7
    assert ticks == sorted(ticks)


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0.0, "0 ms"), (12.34, "12.3 ms"), (-2_500.0, "-2.5 s"), (90_000.0, "90 s"), (9e7, "25.0 h")],
)
def test_amounts_are_read_easily(ms: float, text: str) -> None:
    assert amount(ms) == text


def test_the_conclusion_names_winner_difference_and_doubt() -> None:
    sentence = found()["conclusion"]
    assert re.match(r"hops would have earned .* more than what was done live", sentence)
    assert "95 % interval" in sentence
    assert "td, earned" in sentence


def test_drift_and_reliability_are_found() -> None:
    shown = found(n=3_000)
    assert sum(each["count"] for each in shown["bins"]) == 3_000
    assert shown["courses"]["timed"]
    assert len(shown["courses"]["at"]) <= 200


class Refers(HTMLParser):
    """Collects what a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "href", "srcset", "action", "data") and value != "data:,":
                self.found.append(f"{tag} {name}={value}")


def test_the_page_fetches_nothing_and_escapes_what_it_shows() -> None:
    shown = page(found('</script><img src="http://x">'))
    parser = Refers()
    parser.feed(shown)
    assert parser.found == []
    assert "<img" not in shown
    assert "url(" not in shown
    assert "@import" not in shown
    assert "default-src 'none'" in shown


@needs_browser
def test_the_page_opens_without_a_complaint_and_fills_its_table(tmp_path: Path) -> None:
    write_page(tmp_path / "report.html", found())
    seen = look(tmp_path / "report.html", tmp_path)
    assert (seen.console, seen.fetched) == ([], set())
    assert "<td>workflow_type=refund/domain=d</td>" in seen.dom, "its script did not run"


def test_the_page_of_many_policies_and_of_one(tmp_path: Path) -> None:
    names = ("hops", "td", "ema", "aci", "pid", "sliding", "fixed", "always", "never")
    shown = page(found(names=names, n=100))
    assert shown.count('class="bar') == len(names) + 3  # live, hindsight, and what holds them
    assert "hops" in page(found(names=("hops",), n=20))
    file = tmp_path / "x.csv"
    write_csv(file, found())
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert {row["policy"] for row in rows} == {"live", "hops", "td"}
    assert {row["path"] for row in rows} == {"", "workflow_type=refund/domain=d"}


def test_a_split_keeps_what_was_searched_apart_from_what_confirms() -> None:
    judge = BacktestEngine({"td": policy("td")}, split=Split(number=30))
    chain = judge.chain("t", (ROOT, "workflow_type=a"))
    for number in range(100):
        judge.judge(chain, Outcome(0.99, True, gain=1.0), number % 50)
    judge.flush()
    assert [sum(part.totals["td"].hits) for part in judge.parts] == [30, 70]
    timed = BacktestEngine({"td": policy("td")}, split=Split(at=40))
    chain = timed.chain("t", (ROOT, "workflow_type=a"))
    for number in range(100):
        timed.judge(chain, Outcome(0.99, True, gain=1.0, timestamp=number), 0)
    timed.flush()
    assert [sum(part.counts) for part in timed.parts] == [40, 60]


def test_an_experiment_shares_out_stably_and_finds_the_better_arm() -> None:
    shares = read_arms(["control=3", "bolder=1"])
    arms = assignment("e", shares)
    assert arms == assignment("e", shares) != assignment("f", shares)
    assert arms.count("control") == GROUPS * 3 // 4
    draw = Random(5)
    earned = [draw.gauss(2.0 if arm == "bolder" else 1.0, 1.0) for arm in arms]
    shown = outcome_of(list(shares), arms, earned, [1] * GROUPS)
    low, high = shown["bolder"]["difference_interval"]
    assert low < 1.0 < high
    assert low > 0.0
    assert "difference" not in shown["control"]
    for wrong in (["a=1"], ["a=1", "a=2"], ["a", "b=1"], ["a=-1", "b=1"]):
        with pytest.raises(WrongShares):
            read_arms(wrong)


@pytest.mark.parametrize("given", ["control=50%", "control=50 %"])
def test_shares_have_no_percent_sign(given: str) -> None:
    with pytest.raises(WrongShares, match="give NAME=SHARE, without %, as control=50"):
        read_arms([given, "bolder=50"])
