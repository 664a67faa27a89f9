"""Runs a recreation of the log in a process that dies, as if killed, behind one of its steps."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from replay.backup.restored_log import RestoredLog
from replay.recreation import held_producers, run
from replay.recreation.run import RecreationTarget, recreate_log

KILLED = 9


def dying(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return a step that is the last thing its process does."""

    async def last(*arguments: Any) -> None:
        await step(*arguments)
        os._exit(KILLED)

    return last


def main(kafka: str, postgres: str, redis: str, folder: str, step: str) -> None:
    held_producers.QUIET_S = 0.5  # type: ignore[misc]
    owner: Any = RestoredLog if hasattr(RestoredLog, step) else run
    setattr(owner, step, dying(getattr(owner, step)))
    target = RecreationTarget(kafka, postgres, redis, "test", hold_s=10.0)
    asyncio.run(recreate_log(target, Path(folder), print))


if __name__ == "__main__":
    main(*sys.argv[1:])
