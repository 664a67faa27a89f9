"""The proof can fail: every rule switched off in turn, and the simulator finds what is broken.

docs/explanation/fault-tests.md holds the table of how many seeds it takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from unittest.mock import patch

from agents.thresholds.checkpoint_writer import CheckpointWriter, Row
from tests.simulation import databases
from tests.simulation.faults import Kill, Redis, Schedule
from tests.simulation.many import first_failures, run_seeds
from tests.simulation.rules import RULES, without
from tests.simulation.run import run
from tests.simulation.wiring import simulated
from topics.schema.json_schema import PublishedThreshold

WITHIN = 100
"""Seeds that are enough to find the absence of a common rule."""
RARE: dict[str, int] = {
    "a_weighing_is_a_row": 160,
    "answer_stale_rows": 2568,
    "dead_letters_before_the_transaction": 153,
    "higher_offset_wins": 2899,
    "holes_count_as_done": 204,
    "mark_while_publishing": 1698,
    "offset_behind_newer_rows": 1107,
    "offsets_in_the_transaction": 111,
    "resets_forget_once": 142,
    "rewrite_whole": 3212,
    "sent_until_received": 1232,
    "write_after_acknowledgement": 209,
}
"""Seeds that find what takes a rarer coincidence; they keep the promise with the rule on."""
BY_HAND = {
    "done_after_what_was_ahead",
    "hold_back_while_redis_is_away",
    "publish_again_what_is_under_way",
}
"""Rules whose absence is found by worlds and schedules made for it."""
UNNOTICED = {
    "announce_after_others",
    "begin_after_the_watermark",
    "compare_offsets_while_idle",
    "complete_from_the_beginning",
    "generation_check",
    "offsets_after_the_transaction",
    "older_rows_are_dropped",
    "only_what_was_seen_is_replaced",
    "skip_what_was_applied",
    "stall_check",
    "what_is_ahead_is_left_alone",
    "what_may_have_been_learned_unnoted_counts",
}
"""Rules whose absence none of 3,000 schedules showed; docs/explanation/fault-tests.md has why."""


def test_the_absence_of_every_common_rule_is_found() -> None:
    common = RULES.keys() - RARE.keys() - UNNOTICED - BY_HAND
    for rule, tally in first_failures(sorted(common), WITHIN):
        assert tally.failed, f"nothing is found without {rule}"


def test_the_absence_of_every_other_rule_is_found_by_its_seed() -> None:
    without_it = run_seeds((seed, rule) for rule, seed in RARE.items())
    with_it = run_seeds((seed, None) for seed in RARE.values())
    for rule, broken, kept in zip(RARE, without_it, with_it, strict=True):
        assert broken.failed, f"nothing is found without {rule}"
        assert not kept.failed


def test_the_committed_offset_must_not_pass_what_waits_for_redis() -> None:
    faults = (Redis(160, "down", 600.0), Kill(240, "all"))
    plans = [Schedule(seed, True, 1, 30, "td", faults) for seed in range(16)]
    with simulated():
        assert not any(run(plan).wrong for plan in plans)
        with without("hold_back_while_redis_is_away"):
            assert any(run(plan).wrong for plan in plans)


def test_the_committed_offset_must_not_pass_what_redis_is_slow_to_take() -> None:
    real = databases.Publisher.publish

    async def slow(self: databases.Publisher, batch: Iterable[PublishedThreshold]) -> None:
        await asyncio.sleep(40.0)
        await real(self, batch)

    faults = (Kill(200, "all"),)
    plans = [Schedule(seed, True, 1, 30, "td", faults) for seed in range(16)]
    with simulated(), patch.object(databases.Publisher, "publish", slow):
        assert not any(run(plan).wrong for plan in plans)
        with without("done_after_what_was_ahead"):
            assert any(run(plan).wrong for plan in plans)


def test_a_redis_emptied_while_the_changelog_is_slow_gets_what_was_being_published() -> None:
    real = CheckpointWriter._append

    async def slow(self: CheckpointWriter, rows: Sequence[Row]) -> bool:
        await asyncio.sleep(5.0)
        return await real(self, rows)

    plans = [Schedule(9, True, 1, 20, "td", (Redis(at, "emptied"),)) for at in range(60, 260, 10)]
    with simulated(), patch.object(CheckpointWriter, "_append", slow):
        assert not any(run(plan).wrong for plan in plans)
        with without("publish_again_what_is_under_way"):
            assert any(run(plan).wrong for plan in plans)
