"""Live and replay, to the bit: kills, a learned default, changed learners, then the log again."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import orjson

from deploy.system import System
from headstart import Emitter
from sinks.redis.queries import served_thresholds
from sinks.redis.thresholds import encode_value
from tests.patience import until
from tests.processes import ENVIRONMENT, command_line
from tests.secured import stack_config
from topics.catalogue import EVENTS
from topics.kafka.reader import topic_state
from topics.schema.json_schema import PublishedThreshold

TENANT = "agreement"
TYPES = 12
"""Workflow types of each half of the run."""
AT_ONCE = 50
DEFAULT_S = 300.0
DRAIN_S = 300.0
LEARNERS = (
    ("domain=d1", "ema:alpha=.1"),
    ("workflow_type=type-3", "td"),
    ("user_id=u2", "sliding"),
)
"""Chosen one after the other: pattern and policy."""

Echo = Callable[[str], None]


@dataclass(frozen=True)
class Agreement:
    """`kills` of the threshold worker, every third with its data; the rest at even distances."""

    events: int
    kills: int
    events_per_s: float = 2_000.0
    seed: int = 1


def run(folder: Path, broker: str, plan: Agreement, echo: Echo) -> dict[str, Any]:
    """Run it on a system of its own; return what was compared. `broker`: embedded or apache."""
    config = stack_config(data=folder / "system", kafka=broker)
    with System(config, partitions=4, echo=echo) as system:
        world = _World(system, plan, folder, echo)
        begun = time.monotonic()
        world.live()
        live_s = time.monotonic() - begun
        assert system.drain(DRAIN_S), "the workers did not take in everything"
        return {
            "events": plan.events,
            "killed": world.killed,
            "wiped": world.wiped,
            "learners_changed": len(LEARNERS),
            "live_s": round(live_s, 1),
            **world.compared(),
        }


class _World:
    def __init__(self, system: System, plan: Agreement, folder: Path, echo: Echo) -> None:
        self._system, self._plan, self._folder, self._echo = system, plan, folder, echo
        self._draw = random.Random(plan.seed)
        self.killed = self.wiped = 0

    def live(self) -> None:
        """Emit all events, and do at their places in between what is to be done."""
        plan, half = self._plan, self._plan.events // 2
        # Never in the last tenth: what was learned after the last restart is looked at too.
        kills = [plan.events * 9 // 10 * (each + 1) // plan.kills for each in range(plan.kills)]
        chosen = [half // 3, half * 2 // 3, half + half // 3]
        actions: list[tuple[int, Callable[[], None]]] = [(at, self._kill) for at in kills]
        actions += [
            (at, lambda choice=choice: self._choose(*choice))  # type: ignore[misc]
            for at, choice in zip(chosen, LEARNERS, strict=True)
        ]
        actions.append((half, self._wait_for_default))
        actions.sort(key=lambda each: -each[0])
        spool = self._folder / "spool"
        with Emitter(self._system.addresses.kafka, spool=spool) as emitter:
            begun = time.monotonic()
            for number in range(plan.events):
                while actions and actions[-1][0] <= number:
                    before = time.monotonic()
                    actions.pop()[1]()
                    begun += time.monotonic() - before
                self._emit(emitter, number, first=0 if number < half else TYPES)
                if number % AT_ONCE == 0:
                    self._system.check()
                    time.sleep(max(0.0, begun + number / plan.events_per_s - time.monotonic()))
            emitter.flush(60.0)

    def _emit(self, emitter: Emitter, number: int, first: int) -> None:
        draw = self._draw
        confidence = draw.random()
        right = draw.random() < confidence ** (1.0 + draw.random())
        # Types of the second half begin in the default; those of the first go on.
        kind = draw.randrange(first + TYPES)
        common: dict[str, Any] = {
            "tenant": TENANT, "workflow_type": f"type-{kind}", "workflow_id": f"w{number}",
            "user_id": f"u{draw.randrange(4)}", "event_type": "task_complete",
        }  # fmt: skip
        context = {"domain": f"d{draw.randrange(3)}"}
        result = {"gain_ms": draw.uniform(10, 500), "cost_ms": draw.uniform(10, 900)}
        if number % 7 == 0:
            guess = {"tool_id": "search", "speculated": True}
            emitter.emit(
                **{**common, "event_type": "speculation_start"}, task_id="1",
                confidence=confidence, data={"context": context, "prediction": guess},
            )  # fmt: skip
            tool = "search" if right else "cancel"
            emitter.emit(**common, task_id="1", tool_id=tool, data={"result": result})
            return
        judged = {"was_correct": right, "speculated": draw.random() < 0.5}
        data = {"context": context, "prediction": judged, "result": result}
        emitter.emit(**common, confidence=confidence, data=data)

    def _kill(self) -> None:
        """Kill the threshold worker -9; every third time it comes back with nothing."""
        supervisor = self._system.supervisor
        assert supervisor is not None
        pid = supervisor.pids["thresholds"]
        folder = self._system.data / "workers" / "thresholds-0"
        wipe = self.killed % 3 == 2 and folder.exists()
        if wipe:
            folder = folder.rename(folder.with_suffix(f".{pid}"))
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        if wipe:
            shutil.rmtree(folder)
            self.wiped += 1
        self.killed += 1

    def _choose(self, pattern: str, learner: str) -> None:
        self._command("learner", "choose", pattern, learner, "--tenant", TENANT)

    def _wait_for_default(self) -> None:
        """Wait until the tenant's default is served: the types to come begin in it."""
        until(
            lambda: any(each["path"] == "default" for each in self._served()),
            DEFAULT_S, 0.2, meanwhile=self._system.check, seen=lambda: "no default was learned",
        )  # fmt: skip

    def _served(self) -> list[dict[str, Any]]:
        async def read() -> list[dict[str, Any]]:
            served = served_thresholds(self._system.addresses.redis, TENANT, defaults=True)
            return [each async for each in served]

        return asyncio.run(read())

    def compared(self) -> dict[str, Any]:
        """Compare what is served with the output of `headstart replay`, and rows by `verify`.

        Again where the log went on meanwhile: a default may come when all events are in.
        """
        while True:
            before = self._ends()
            found = self._compared()
            if not wrong(found) or self._ends() == before:
                return found
            assert self._system.drain(DRAIN_S)

    def _ends(self) -> Any:
        return asyncio.run(topic_state(self._system.addresses.kafka, EVENTS.name)).end

    def _compared(self) -> dict[str, Any]:
        file = self._folder / "replayed.jsonl"
        begun = time.monotonic()
        self._command("replay", "--thresholds-out", str(file), "--processes", "1")
        replay_s = time.monotonic() - begun
        decode = msgspec.json.Decoder(PublishedThreshold).decode
        replayed = {
            (each.tenant, each.path): orjson.loads(encode_value(each))
            for each in map(decode, file.read_bytes().splitlines())
        }
        served = {(each["tenant"], each["path"]): each for each in self._served()}
        differing = [
            place
            for place in replayed.keys() & served.keys()
            if any(served[place].get(name) != value for name, value in replayed[place].items())
        ]
        for place in differing[:5]:
            self._echo(f"served {served[place]}, replayed {replayed[place]}")
        at = self._system.addresses
        verified = self._command("verify", "--postgres", at.postgres, "--redis", at.redis)
        return {
            "contexts": len(replayed),
            "learners": sorted({each["learner"] for each in replayed.values()}),
            "differing": len(differing),
            "not_served": len(replayed.keys() - served.keys()),
            "not_replayed": len(served.keys() - replayed.keys()),
            "verify": verified["counts"],
            "rows": verified["rows"],
            "replay_s": round(replay_s, 1),
        }

    def _command(self, *words: str) -> dict[str, Any]:
        """Run a command beside the system; return its output."""
        line = command_line(*words, "--kafka", self._system.addresses.kafka)
        process = subprocess.Popen([*line, "--json"], stdout=subprocess.PIPE, env=ENVIRONMENT)
        while process.poll() is None:
            self._system.check()
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
        assert process.stdout is not None
        output = process.stdout.read()
        process.stdout.close()
        assert output, f"{words}: exit code {process.returncode}"
        found: dict[str, Any] = json.loads(output)
        return found


def wrong(found: dict[str, Any]) -> bool:
    """Return whether anything does not agree."""
    return bool(
        found["differing"] or found["not_served"] or found["not_replayed"] or found["verify"]
    )
