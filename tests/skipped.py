"""What test runs skipped and why: `python -m tests.skipped RUN.xml ...`, JUnit reports of pytest.

A test that another of the runs ran is counted apart: only what no run ran was not tested. Then the
suites that are no part of CI, and why.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tests.compose.engine import no_engine


class TestCase(NamedTuple):
    """One test in one run; `reason` is empty where it was not skipped."""

    __test__ = False  # pytest: not a class of tests

    name: str
    reason: str


def read_cases(report: Path) -> Iterator[TestCase]:
    """Yield the tests of one run."""
    for case in ElementTree.parse(report).iter("testcase"):
        skipped = case.find("skipped")
        name = f"{case.get('classname')}::{case.get('name')}"
        yield TestCase(name, "" if skipped is None else skipped.get("message", "no reason given"))


def summary(runs: Iterable[Iterable[TestCase]]) -> list[str]:
    """Return the lines that list what was skipped, by reason, the most frequent first."""
    cases = [case for run in runs for case in run]
    ran = {case.name for case in cases if not case.reason}
    skipped = {case.name: case.reason for case in cases if case.reason}
    counts = {
        "Skipped in every run:": Counter(
            reason for name, reason in skipped.items() if name not in ran
        ),
        "Skipped in one run and run in another:": Counter(
            reason for name, reason in skipped.items() if name in ran
        ),
    }
    lines = []
    for title, by_reason in counts.items():
        lines.append(title)
        lines += [f"  {count:5}  {reason}" for reason, count in by_reason.most_common()]
        lines += [] if by_reason else ["      0"]
    return lines


def left_out() -> list[str]:
    """Return the lines that list the suites that CI does not run."""
    why = no_engine() or "a container engine answers, but it takes ten minutes; run it by hand"
    return ["Skipped as a whole:", f"      1  make test-compose: {why}"]


if __name__ == "__main__":
    reports = (read_cases(Path(report)) for report in sys.argv[1:])
    print(*summary(reports), *left_out(), sep="\n")
