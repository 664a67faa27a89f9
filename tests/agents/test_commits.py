"""Commits take effect in order; what others appended is answered where ours is newer."""

from __future__ import annotations

from typing import Any

import pytest

from agents.thresholds.checkpoint_writer import CheckpointWriter, superseding_row
from processing.contexts.thresholds import threshold_from_row
from processing.state.rows import context_key, deleted, stale
from tests.agents.checkpoint_world import EPOCH, World, commit, row, run


def test_the_order_of_effects() -> None:
    world = World()
    first = commit(4, a=row(3))
    first.moved.append(
        threshold_from_row(context_key("acme", "workflow_type=a"), deleted(EPOCH, 3))
    )
    run(CheckpointWriter(world, 0).write(first))
    assert world.happened == ["dead letters", "redis", "changelog", "store", "topic", "done 4"]
    assert (world.table[b"a"], world.held) == (row(3), 1)


def test_unchanged_thresholds_are_published_and_not_announced() -> None:
    world = World()
    run(CheckpointWriter(world, 0).write(commit(4, a=row(3))))
    assert world.happened == ["dead letters", "redis", "changelog", "store", "done 4"]


def test_nothing_is_appended_by_who_lost_the_partition() -> None:
    world = World()
    world.owned = False
    run(CheckpointWriter(world, 0).write(commit(4, a=row(3))))
    assert (world.log, world.table, world.held) == ([], {}, None)


def test_a_worker_that_lost_the_partition_leaves_the_rest_to_the_next_owner() -> None:
    world = World()
    world.after_send = lambda: setattr(world, "owned", False)
    run(CheckpointWriter(world, 0).write(commit(4, a=row(3))))
    assert world.happened == ["dead letters", "redis", "changelog"]
    assert (world.table, world.held) == ({}, None)


def test_a_failed_send_leaves_table_and_changelog_as_they_were() -> None:
    world = World()

    def fail() -> None:
        raise RuntimeError("broker away")

    world.before_send = fail
    with pytest.raises(RuntimeError, match="broker away"):
        run(CheckpointWriter(world, 0).write(commit(4, a=row(3))))
    assert (world.table, world.held, world.happened) == ({}, None, ["dead letters", "redis"])


def test_a_stale_row_in_between_is_answered_with_ours() -> None:
    world = World()
    writer = CheckpointWriter(world, 0)
    run(writer.write(commit(10, a=row(9), b=row(5), gone=deleted(EPOCH, 7))))
    world.log += [(b"a", row(2)), (b"gone", row(1)), (b"b", row(5)), (b"ahead", row(40))]
    run(writer.write(commit(12, c=row(11))))
    kept = world.last_rows()
    assert (kept[b"a"], kept[b"b"], kept[b"c"]) == (row(9), row(5), row(11))
    assert kept[b"gone"] == deleted(EPOCH, 7)
    assert kept[b"ahead"] == row(40), "of an owner that was ahead of us: we shall get there"
    assert b"ahead" not in world.table
    assert world.held == 3, "a recovery from here would otherwise miss what we do not have yet"
    assert b"a" in world.produced_again, "the writer of the stale row announced it, too"
    assert b"ahead" not in world.produced_again


def test_where_another_was_ahead_ours_is_announced_once_it_is_as_new() -> None:
    """Whatever moved away and back between two commits moved once for an observer of both."""
    world = World()
    writer = CheckpointWriter(world, 0)
    world.log.append((b"a", row(8)))
    run(writer.write(commit(6, a=row(5))))
    assert world.produced_again == []
    run(writer.write(commit(8, a=row(7))))
    assert world.produced_again == [], "it is not yet as new"
    run(writer.write(commit(10, a=row(9))))
    run(writer.write(commit(12, a=row(11))))
    assert world.produced_again == [b"a"]


def test_a_stale_row_at_the_end_is_found_without_another_commit() -> None:
    world = World()
    writer = CheckpointWriter(world, 0)
    run(writer.write(commit(10, a=row(9))))
    world.log.append((b"a", row(2)))
    run(writer.check_changelog(len(world.log)))
    assert world.last_rows()[b"a"] == row(9)
    assert world.held == len(world.log) - 1
    before = len(world.log)
    run(writer.check_changelog(before))
    assert len(world.log) == before, "looked at once"


def test_stale_rows_that_keep_coming_are_all_answered() -> None:
    world = World()
    writer = CheckpointWriter(world, 0)
    run(writer.write(commit(10, a=row(9))))
    left = [1, 2, 3]

    def zombie() -> None:
        if left:
            world.log.append((b"a", row(left.pop())))

    world.before_send = zombie
    run(writer.write(commit(12, c=row(11))))
    assert left == []
    assert world.last_rows()[b"a"] == row(9)
    assert world.held == len(world.log) - 1


def test_the_offset_held_never_passes_over_rows_that_were_not_looked_at() -> None:
    world = World()
    writer = CheckpointWriter(world, 0)
    run(writer.write(commit(10, a=row(9))))
    world.log.append((b"a", row(2)))

    def lose() -> None:
        world.owned = world.happened.count("changelog") < 2

    world.after_send = lose
    held = world.held
    run(writer.write(commit(12, c=row(11))))
    assert world.held == held, "a recovery from here finds the stale row and supersedes it"


def test_mending_appends_our_rows_again() -> None:
    world = World()
    writer = CheckpointWriter(world, 0)
    run(writer.write(commit(10, a=row(9), b=row(8))))
    run(writer.rewrite_stale_keys([b"a", b"unknown"]))
    assert world.log[-1] == (b"a", row(9))
    assert world.held == len(world.log) - 1


def test_only_current_markers_are_deleted() -> None:
    world = World()
    writer = CheckpointWriter(world, 0)
    old = deleted(EPOCH, 5)
    run(writer.write(commit(10, gone=old, back=row(9))))
    world.redis_is_there = False
    assert not run(writer.delete_expired([(b"gone", old), (b"back", old)]))
    world.redis_is_there = True
    assert run(writer.delete_expired([(b"gone", old), (b"back", old)]))
    assert world.log[-1] == (b"gone", None)
    assert b"gone" not in world.table
    assert world.table[b"back"] == row(9)


MARK = deleted(EPOCH, 5)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (row(9), row(8), row(9)),
        (row(9), row(9), None),
        (row(9), row(10), None),
        (row(1, epoch=4), row(9), row(1, epoch=4)),
        (row(9), None, row(9)),
        (MARK, None, None),
        (MARK, row(4), MARK),
        (None, None, None),
        (None, row(7), deleted(EPOCH, 8)),  # deleted, marked and its marker deleted since
        (None, row(21), None),  # ahead of us
        (None, MARK, None),
    ],
)
def test_which_row_supersedes_a_stale_one(
    ours: bytes | None, theirs: bytes | None, expected: bytes | None
) -> None:
    found = superseding_row(ours, theirs, (EPOCH, 20))
    assert found == expected
    if found is not None:
        assert not stale(theirs, found), "the answer wins in a recovery"


def test_rows_that_could_not_be_read_back_are_checked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    writer = CheckpointWriter(world, 0)

    async def away(_begin: int, _end: int) -> list[Any]:
        raise ConnectionError("broker away")

    async def body() -> None:
        await writer.write(commit(9, a=row(8)))
        world.log.append((b"a", row(5)))
        with monkeypatch.context() as patched:
            patched.setattr(world, "read_changelog", away)
            with pytest.raises(ConnectionError):
                await writer.check_changelog(3)
        await writer.check_changelog(3)

    run(body())
    assert world.last_rows()[b"a"] == row(8)
