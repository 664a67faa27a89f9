"""The page of complaints has a test for each report, and the tests exist and cite it."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from tests.sinks.isolation.statement_texts import ROOT

PAGE = (ROOT / "docs/explanation/memory-complaints.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[a-z_/]+\.py)`(?: \(`(\w+)`\))?")
REPORT = re.compile(r"#\d+|PR \d+")
REPORTS = 31
"""Rows of complaints that were collected before the memory was built."""


class Complaint(NamedTuple):
    report: str
    tests: list[tuple[str, str]]


def complaints() -> list[Complaint]:
    table = PAGE.split("| report |")[1].split("\n\n")[0]
    cells = [line.split(" | ") for line in table.splitlines()[2:]]
    return [Complaint(line[0].strip("| "), NAMED.findall(line[-1])) for line in cells]


def text_of(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def test_no_report_is_left_out() -> None:
    found = [each.report for each in complaints()]
    assert len(found) == len(set(found)) == REPORTS


def test_every_test_of_the_page_exists() -> None:
    named = NAMED.findall(PAGE)
    assert len(named) > REPORTS
    for file, test in named:
        assert not test or f"def {test}(" in text_of(file), (file, test)


@pytest.mark.parametrize("complaint", complaints(), ids=lambda each: each.report)
def test_a_test_of_each_row_cites_the_report(complaint: Complaint) -> None:
    cited = "\n".join(text_of(file) for file, _ in complaint.tests)
    numbers = REPORT.findall(complaint.report)
    assert numbers
    assert [each for each in numbers if not re.search(rf"{each}\b", cited)] == []
