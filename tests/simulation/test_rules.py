"""The proof can fail: every rule switched off in turn, and the simulator finds what is broken.

docs/reliability.md holds the table of how many seeds it takes.
"""

from __future__ import annotations

import pytest

from tests.simulation.many import first_failures, run_seed
from tests.simulation.rules import RULES

WITHIN = 100
"""Seeds that are enough to find the absence of a common rule."""
RARE: dict[str, int] = {}
"""Seeds that find what takes a rarer coincidence; they keep the promise with the rule on."""
UNNOTICED: dict[str, str] = {}
"""Rules whose absence no schedule has shown, and why."""


def test_the_absence_of_every_common_rule_is_found() -> None:
    common = RULES.keys() - RARE.keys() - UNNOTICED.keys()
    for rule, tally in first_failures(sorted(common), WITHIN):
        assert tally.failed, f"nothing is found without {rule}"


@pytest.mark.parametrize("rule", RARE)
def test_the_absence_of_every_other_rule_is_found_by_its_seed(rule: str) -> None:
    assert run_seed(RARE[rule], rule).wrong
    assert not run_seed(RARE[rule]).wrong
