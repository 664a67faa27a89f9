"""The summary of skipped tests at the end of CI."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.skipped import left_out, read_cases, summary

ONE = """<testsuites><testsuite>
<testcase classname="tests.a" name="test_x"><skipped message="no Chromium"/></testcase>
<testcase classname="tests.a" name="test_y"><skipped message="slow"/></testcase>
<testcase classname="tests.a" name="test_z"/></testsuite></testsuites>"""
OTHER = """<testsuites><testsuite>
<testcase classname="tests.a" name="test_x"><skipped message="no Chromium"/></testcase>
<testcase classname="tests.a" name="test_y"/></testsuite></testsuites>"""


def test_tests_that_no_run_ran_are_counted_apart(tmp_path: Path) -> None:
    reports = [tmp_path / "one.xml", tmp_path / "other.xml"]
    for report, text in zip(reports, (ONE, OTHER), strict=True):
        report.write_text(text)
    assert summary(map(read_cases, reports)) == [
        "Skipped in every run:",
        "      1  no Chromium",
        "Skipped in one run and run in another:",
        "      1  slow",
    ]


def test_no_skips_are_reported() -> None:
    assert summary([]) == [
        "Skipped in every run:", "      0", "Skipped in one run and run in another:", "      0",
    ]  # fmt: skip


def test_containers_are_reported_where_they_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert left_out() == [
        "Skipped as a whole:", "      1  make test-compose: docker is not on PATH"
    ]  # fmt: skip
