"""An operator who sends a control record until it is in every partition."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Final

from learners.policy import spec
from processing.records.partitioner import partition_for
from tests.simulation.broker import PARTITIONS
from tests.simulation.faults import Forget, Plant, Steer, Weigh
from tests.simulation.process import BrokerAway, Process
from topics.control.messages import Downweight, LearnerChoice, Reset, Seed, Seeded, control_records
from topics.dead_letters.messages import OutgoingRecord

if TYPE_CHECKING:
    from tests.simulation.world import World

OPERATORS_KEY: Final = b"the operators' key"
RETRY_S: Final = 1.0


class Steering(Process):
    """Sends records one by one; what a lost answer repeats must do no harm."""

    def __init__(self, world: World, waiting: list[OutgoingRecord], *, signed: bool) -> None:
        super().__init__("an operator", world)
        self._waiting, self._signed = waiting, signed
        world.steering.add(self)
        self.start(self._send())

    async def _send(self) -> None:
        while self._waiting:
            record = self._waiting[0]
            try:
                await self.call("control.append", lambda one=record: self._append(one))
                self._waiting.pop(0)
            except BrokerAway:
                await asyncio.sleep(RETRY_S)
        self.world.steering.discard(self)

    def _append(self, record: OutgoingRecord) -> None:
        world = self.world
        if world.recreating:
            raise BrokerAway("the broker is being recreated")
        world.append_record(record.partition, record.key, record.value, record.headers)
        if not self._signed:
            world.refused.append(("thresholds", record.value))

    def again(self) -> None:
        """Have the command given again after its process died."""
        self.world.steering.discard(self)
        Steering(self.world, self._waiting, signed=self._signed)


def said_now(world: World) -> tuple[str, int]:
    """Return id and time of a command."""
    # Clocks differ: a choice may be made later, and yet be the earlier one by its time.
    at = world.wall_ms() + world.chance.randint(-60_000, 60_000)
    return str(uuid.UUID(int=world.chance.getrandbits(128), version=4)), at


def steer(world: World, fault: Steer) -> None:
    """Send one choice into every partition."""
    choice = LearnerChoice(*said_now(world), fault.pattern, fault.learner)
    key = OPERATORS_KEY if fault.signed else b"another key"
    Steering(world, control_records(choice, range(PARTITIONS), key), signed=fault.signed)


def forget(world: World, fault: Forget) -> None:
    """Send one reset into every partition."""
    reset = Reset(*said_now(world), fault.pattern, fault.tenant)
    Steering(world, control_records(reset, range(PARTITIONS), OPERATORS_KEY), signed=True)


def plant(world: World, fault: Plant) -> None:
    """Send one seed into the partition that it is for."""
    policy = world.rules.policy
    seeded = Seeded(
        spec(policy), policy.version, policy.initial(), 7, f"workflow_type={fault.workflow_type}",
        5, 3,
    )  # fmt: skip
    seed = Seed(*said_now(world), fault.tenant, 0, (seeded,))
    place = partition_for(fault.tenant, fault.workflow_type, PARTITIONS)
    Steering(world, control_records(seed, [place], OPERATORS_KEY), signed=True)


def weigh(world: World, fault: Weigh) -> None:
    """Send what weighs a user down into their partition, and again: an outbox may repeat."""
    name, at = said_now(world)
    path = f"workflow_type={fault.workflow_type}/domain=retail/user_id={fault.user}"
    until = at + int(fault.hours * 3_600_000)
    downweight = Downweight(name, at, "acme", path, fault.every, until)
    place = partition_for("acme", fault.workflow_type, PARTITIONS)
    records = control_records(downweight, [place], OPERATORS_KEY)
    Steering(world, records * world.chance.choice([1, 2]), signed=True)
