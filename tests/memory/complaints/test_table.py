"""The page of complaints names tests that exist."""

from __future__ import annotations

import re

from tests.sinks.isolation.statement_texts import ROOT

PAGE = ROOT / "docs/explanation/memory-complaints.md"


def test_every_test_of_the_page_exists() -> None:
    named = re.findall(r"`(tests/[a-z_/]+\.py)`(?: \(`(\w+)`\))?", PAGE.read_text(encoding="utf-8"))
    assert len(named) > 25
    for file, test in named:
        text = (ROOT / file).read_text(encoding="utf-8")
        assert not test or f"def {test}(" in text, (file, test)
