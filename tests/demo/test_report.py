"""The demo's page: it names the winner in words, and makes no requests."""

from __future__ import annotations

import html
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

from demo.accounting import JudgedGuess
from demo.comparison import compare
from demo.invariants import Invariant
from demo.report import page, sentence, write_report
from tests.browsing import look, needs_browser, photograph


def found(
    learned: float = 0.6, path: str = "workflow_type=refund/user_id=u", n: int = 3_000
) -> Any:
    """What is shown of calibrated guesses that were started from `learned` on."""
    draw = Random(3)
    judged = []
    for number in range(n):
        p = draw.random()
        judged.append(
            JudgedGuess(f"{path}{number % 8}", p, learned, p >= learned, draw.random() < p, 400.0,
            600.0,
                   1_750_000_000_000 + 10 * number, f"w{number // 4}")
        )  # fmt: skip
    return compare(judged) | {
        "drift_at": 15.0,
        "latencies_ms": [draw.lognormvariate(3.0, 1.0) for _ in range(500)],
        "reads_us": [draw.lognormvariate(0.0, 1.0) for _ in range(500)],
        "invariants": [Invariant("Every event is stored", "read back", "5 of 5", [])],
        "versions": {"Python": "3.11"},
        "settings": {"learner": "hops"},
    }


def test_the_headline_has_winner_lead_and_interval() -> None:
    shown = page(found())
    head = shown[: shown.index('<div class="bars">')]
    assert "Learned thresholds won by " in head
    assert "over a fixed 0.92 threshold, the next best (95 % interval: " in head
    assert 'class="verdict sure"' in head


def test_a_learner_that_lost_is_not_called_the_winner() -> None:
    lost = found(learned=0.05)
    assert lost["winner"] == "fixed 0.92"
    assert sentence(lost).startswith("A fixed 0.92 threshold earned ")
    assert "more than learned thresholds" in sentence(lost)
    assert 'class="verdict worse"' in page(lost)


def test_a_lead_that_may_be_chance_is_called_so() -> None:
    few = found(n=60)
    low = few["lead_interval"][0]
    assert low < 0.0
    assert "which may be chance" in sentence(few)
    assert 'class="verdict unsure"' in page(few)


def test_a_broken_invariant_comes_before_the_verdict() -> None:
    broken = found() | {"invariants": [Invariant("Every event is stored", "", "", ["2 missing"])]}
    shown = page(broken)
    assert shown.index("2 missing") < shown.index("won by")


@pytest.mark.parametrize("n", [0, 1, 30])
def test_a_demo_that_hardly_ran_has_a_page(n: int) -> None:
    little = found(n=n) | {"latencies_ms": [], "reads_us": [], "drift_at": None}
    assert "<h2>Versions and settings</h2>" in page(little)


def test_the_memory_comes_before_the_settings() -> None:
    figures = dict.fromkeys(("exact", "next", "edit", "delta_edit", "delta_edit_interval"))
    worth = {"runs": 1, "typical": figures, "memory": figures}
    shown = page(found(n=30) | {"memory": {"cases": [], "degraded": [], "worth": worth}})
    place = shown.index("The memory: cases of earlier runs")
    assert shown.index("Nothing was lost") < place < shown.index("Versions and settings")


def test_external_text_is_escaped() -> None:
    assert "<img" not in page(found(path='workflow_type=<img src="http://x">/user_id='))


@needs_browser
def test_it_opens_without_a_complaint_and_fetches_nothing(tmp_path: Path) -> None:
    control = tmp_path / "control.html"
    control.write_text('<img src="http://203.0.113.7/x.png"><script>nothing()</script>')
    seen = look(control, tmp_path)
    assert seen.fetched == {"http://203.0.113.7/x.png"}, "this test would see a request"
    assert "nothing is not defined" in seen.console[0], "this test would see an error"

    write_report(tmp_path / "report.html", found())
    seen = look(tmp_path / "report.html", tmp_path)
    assert (seen.console, seen.fetched) == ([], set())
    assert seen.dom.count("<svg viewBox") >= 8 + 5


@needs_browser
@pytest.mark.parametrize("width", [400, 1000])
def test_nothing_is_wider_than_the_screen(tmp_path: Path, width: int) -> None:
    write_report(tmp_path / "report.html", found())
    text = html.escape((tmp_path / "report.html").read_text())
    # A window has a least width, a frame has not.
    framed = tmp_path / "framed.html"
    framed.write_text(
        f'<iframe width="{width}" height="900" frameborder="0" srcdoc="{text}"></iframe><script>'
        "const frame = document.querySelector('iframe'); frame.onload = () => {"
        "const page = frame.contentDocument.documentElement;"
        "document.title = `${page.clientWidth} ${page.scrollWidth}`}</script>"
    )
    titles = re.findall(r"<title>(\d+) (\d+)</title>", look(framed, tmp_path).dom)
    ((inside, needed),) = titles
    assert width - 20 <= int(inside) <= width  # but for a scrollbar
    assert needed == inside


@needs_browser
def test_it_is_dark_where_the_reader_has_it_so(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    write_report(page, found())
    pictures = [tmp_path / "light.png", tmp_path / "dark.png"]
    for picture in pictures:
        photograph(page, picture, tmp_path, width=400, dark=picture.stem == "dark")
    light, dark = (picture.read_bytes() for picture in pictures)
    assert light != dark
    assert min(len(light), len(dark)) > 30_000, "an empty page is smaller"
