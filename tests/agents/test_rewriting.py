"""A table appended again whole: a worker without it reads the changelog from there on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

from hypothesis import given
from hypothesis import strategies as st

from agents.thresholds.checkpoint_writer import CheckpointWriter
from processing.state.rows import PARTITION_KEY
from tests.agents.checkpoint_world import World, commit, row, run


async def pieces(*found: Iterable[bytes]) -> AsyncIterator[list[bytes]]:
    for keys in found:
        yield list(keys)


def restored(world: World, begin: int) -> dict[bytes, bytes | None]:
    """What a worker without a store reads from `begin` on."""
    return {key: value for key, value in dict(world.log[begin:]).items() if value is not None}


def test_records_before_the_rewrite_need_not_be_read() -> None:
    world = World()
    writer = CheckpointWriter(world, 0)

    async def body() -> None:
        await writer.write(commit(4, a=row(3), b=row(2)))
        await writer.rewrite(pieces([b"a", b"b"], [PARTITION_KEY, b"gone"]))
        assert (writer.complete_from, world.complete_from) == (3, 0)
        await writer.write(commit(5, c=row(4)))

    run(body())
    assert world.complete_from == 3
    assert restored(world, 3) == world.table


def test_an_owner_behind_another_rewrites_nothing() -> None:
    world = World()
    writer = CheckpointWriter(world, 0)

    async def body() -> None:
        await writer.write(commit(4, a=row(3)))
        world.log += [(b"a", row(8)), (PARTITION_KEY, row(8))]
        await writer.write(commit(6, b=row(5)))
        appended = len(world.log)
        await writer.rewrite(pieces(list(world.table)))
        assert (writer.complete_from, len(world.log)) == (0, appended)
        await writer.write(commit(9, a=row(8)))
        await writer.rewrite(pieces(list(world.table)))
        assert writer.complete_from == len(world.log) - 3

    run(body())


def test_an_owner_that_loses_the_partition_does_not_mark_it_complete() -> None:
    world = World()
    writer = CheckpointWriter(world, 0)

    async def lost() -> AsyncIterator[list[bytes]]:
        yield [b"a"]
        world.owned = False
        yield [PARTITION_KEY]

    async def body() -> None:
        await writer.write(commit(4, a=row(3)))
        await writer.rewrite(lost())

    run(body())
    assert writer.complete_from == 0


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=30), st.integers(1, 3))
def test_commits_between_its_pieces_lose_nothing(steps: list[tuple[str, bool]], size: int) -> None:
    world = World()
    writer = CheckpointWriter(world, 0)

    async def body() -> None:
        waiting: list[asyncio.Task[None]] = []
        for at, (name, rewrite) in enumerate(steps):
            await writer.write(commit(at + 1, **{name: row(at)}))
            if rewrite:
                keys = list(world.table)
                cut = [keys[n : n + size] for n in range(0, len(keys), size)]
                waiting.append(asyncio.create_task(writer.rewrite(pieces(*cut))))
                await asyncio.sleep(0)
        await asyncio.gather(*waiting)

    run(body())
    assert restored(world, writer.complete_from) == world.table
