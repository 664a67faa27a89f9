"""Lets one worker of an instance name into a consumer group, and keeps a second one out.

The name makes a worker a static member of its group. Of two with the same name the broker keeps the
one that joined last; the other would join again, and so on. Heartbeats of aiokafka do not carry the
name, so neither learns why it was put out.

A worker's client id ends with the id of its data directory (agents/place.py). The broker keeps the
client id of a static member that is replaced, so a worker that starts again recognises its
predecessor, which has ended, because it has the lock of the directory (agents/worker.py).
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiokafka.errors import BrokerResponseError, kafka_errors

from agents.place import draw_place_id, known_place_id, place_id
from topics.kafka.groups import GroupMember, group_members, remove_member

_POLL_S: Final = 1.0
_UUID_CHARACTERS: Final = 36
_HASH_CHARACTERS: Final = 8
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class FencedInstanceId(BrokerResponseError):  # type: ignore[misc]
    """Another member has joined with the same instance name; aiokafka does not know the code."""

    errno = 82
    message = "FENCED_INSTANCE_ID"
    description = "Another member of the group has taken this instance name."


kafka_errors.setdefault(FencedInstanceId.errno, FencedInstanceId)


class InstanceNameTaken(RuntimeError):
    """Another worker with the same instance name is in the group."""

    def __init__(self, membership: Membership, other: GroupMember | None) -> None:
        by = "another worker" if other is None else f"another worker ({membership.place_of(other)})"
        super().__init__(
            f"{by} with the instance name {membership.instance} is in the group "
            f"{membership.group}, and two would put each other out: give this one its own name "
            "(--instance NAME or HEADSTART_INSTANCE), or end the other"
        )


@dataclass(frozen=True)
class Membership:
    """How a worker appears in its consumer group. `data`: its own data directory."""

    kafka: str
    group: str
    instance: str
    data: Path

    @property
    def static_id(self) -> str:
        """The group's `group.instance.id` of this worker."""
        return f"{self.group}-{self.instance}"

    @property
    def client_id(self) -> str:
        """The id of its Kafka clients: static id, host, and the id of the data directory.

        Raises `OSError` if the directory has none and cannot be written to.
        """
        return f"{self.static_id}.{socket.gethostname()}.{place_id(self.data)}"

    @property
    def earlier_client_id(self) -> str:
        """The same of a worker of an earlier version: a hash of host, boot and path at the end."""
        host = socket.gethostname()
        boot = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""
        place = f"{host}\0{boot}\0{self.data.resolve()}".encode()
        return f"{self.static_id}.{host}.{hashlib.sha256(place).hexdigest()[:_HASH_CHARACTERS]}"

    def place_of(self, member: GroupMember) -> str:
        """Return the host of a member with this static id, and the address it connects from.

        Both of the first worker of its directory: the broker keeps them when it is replaced.
        """
        address, before = member.host.lstrip("/"), f"{self.static_id}."
        host, _, _place = member.client_id.removeprefix(before).rpartition(".")
        known = host and member.client_id.startswith(before)
        return f"host {host}, {address}" if known else address

    async def require_own_name(self, waits: Callable[[str], None], patience_s: float) -> None:
        """Return once no worker of another place has this worker's name.

        `waits`: called with the reason every second. `patience_s`: longer than the session timeout,
        within which a member that has ended leaves the group. Raises `InstanceNameTaken` if the
        other is still in it then, and `BrokerUnreachable`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience_s
        while other := self._other(await group_members(self.kafka, self.group)):
            if loop.time() > deadline:
                raise InstanceNameTaken(self, other)
            waits(f"{self.place_of(other)} has it, or has ended less than {patience_s:.0f} s ago")
            await asyncio.sleep(_POLL_S)

    async def leave(self) -> bool:
        """Return whether the predecessor at this place was in the group, and leaves it now.

        For a worker that will not join soon: a static member that has ended keeps its partitions,
        unprocessed, for the session timeout. Raises `BrokerUnreachable`.
        """
        left = False
        for each in self._named(await group_members(self.kafka, self.group)):
            if self._is_here(each):
                left |= await remove_member(self.kafka, self.group, each.member_id)
        return left

    def _other(self, members: Iterable[GroupMember]) -> GroupMember | None:
        return next((each for each in self._named(members) if not self._is_here(each)), None)

    def _is_here(self, member: GroupMember) -> bool:
        """Return whether a member of this static id runs, or ran, on this data directory."""
        _, _, place = member.client_id.rpartition(".")
        return place == known_place_id(self.data) or member.client_id == self.earlier_client_id

    async def taken_since(self, member_id: str) -> InstanceNameTaken | None:
        """Return the error if another member has taken the name since this one was `member_id`.

        Raises `BrokerUnreachable`.
        """
        for each in self._named(await group_members(self.kafka, self.group)):
            if each.member_id != member_id:
                return self._put_out(None if self._is_here(each) else each)
        return None

    def _put_out(self, other: GroupMember | None) -> InstanceNameTaken:
        """Return the error, and take the other for no predecessor at the next start.

        It may run on a copy of this directory, or the broker has left it this worker's client id.
        """
        error = InstanceNameTaken(self, other)
        with suppress(OSError):
            draw_place_id(self.data)
        return error

    def _named(self, members: Iterable[GroupMember]) -> Iterable[GroupMember]:
        """Yield the members of this static id: the broker appends a UUID to it."""
        before = f"{self.static_id}-"
        for each in members:
            if each.member_id[:-_UUID_CHARACTERS] == before:
                yield each

    def explained(self, error: BaseException) -> BaseException:
        """Return `InstanceNameTaken` in place of the broker's error of that meaning."""
        if FencedInstanceId.__name__ in repr(error):  # aiokafka wraps it as text
            return self._put_out(None)
        return error
