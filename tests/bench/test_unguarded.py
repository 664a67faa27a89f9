"""The other side of `exactness` strips what it says, on both ways of the core."""

from __future__ import annotations

import subprocess
import sys

_CODE = """
from bench.unguarded import strip
from processing.rows import SPOOL
from tests.processing.building import context, fetch, judged, make

strip()
plain = [judged(origin=["s1", 1]) for _ in range(5)]
odd = [judged(origin=["s1", 1], mine=1) for _ in range(3)]
core = make({})
asked = []
core._spools.duplicate = core._sent_before = lambda *_: asked.append(1)
core.apply(fetch(*plain, *odd, [*plain, *odd]))
table = dict(core.commit().rows)
assert context(table).outcomes == 16, context(table)
assert not asked
assert not [key for key in table if key.startswith(SPOOL)]
"""


def test_no_way_of_the_core_asks_for_positions() -> None:
    """In a process of its own, because what is stripped stays so."""
    subprocess.run([sys.executable, "-c", _CODE], check=True, timeout=120)
