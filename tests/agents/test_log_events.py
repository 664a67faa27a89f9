"""Every log event of the workers has a line in the reference."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/log-events.md"
LOGGED = re.compile(r'log\.(?:debug|info|warning|error)\(\s*"([^"]+)"')
LISTED = re.compile(r"(?m)^\| `([a-z_.]+)` \| (?:debug|info|warning|error) \|")


def test_every_event_is_listed_and_none_that_is_gone() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "agents").rglob("*.py"))
    listed = {each for each in LISTED.findall(PAGE.read_text()) if not each.startswith("kernels.")}
    assert set(LOGGED.findall(sources)) == listed
