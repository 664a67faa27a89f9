"""A worker that runs although the log is being recreated costs no topic."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from replay.recreation import run
from topics.epoch import Epoch, Recreation
from topics.kafka.groups import GroupInUse


def test_no_topic_is_deleted_while_a_group_has_members(monkeypatch: pytest.MonkeyPatch) -> None:
    deleted: list[Any] = []

    async def in_use(*_: Any) -> None:
        raise GroupInUse("headstart-thresholds")

    async def delete(_kafka: str, names: Any) -> None:
        deleted.extend(names)

    async def lock_is_held() -> None: ...

    monkeypatch.setattr(run, "delete_groups", in_use)
    monkeypatch.setattr(run, "delete_topics", delete)
    monkeypatch.setattr(run, "saved_topics", lambda *_: ())
    target = run.RecreationTarget("kafka", "postgres", "redis", "0")
    state, nothing = Recreation("id", Epoch(1, 4), 2, "saved"), Path("saved")
    with pytest.raises(GroupInUse, match="run this again"):
        asyncio.run(
            run._replace(target, state, nothing, None, lock_is_held, print)  # type: ignore[arg-type]
        )
    assert not deleted
