"""Commands: what people set about what is served, and what follows from the log of them. Pure.

`headstart.commands` is the record of overrides and modes; Redis only serves them. The topic has one
partition, so its order is the order of what was set: of two commands about the same thing the later
one counts, whoever is slow. Nothing here changes what is learned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from headstart.events.schema import MAX_IDENTIFIER
from headstart.keys import SEPARATOR, workflow_type_of
from topics.kafka.limits import LARGEST_MS

Identifier = Annotated[
    str, msgspec.Meta(min_length=1, max_length=MAX_IDENTIFIER, pattern=r"^[^\u0000\u001f]*$")
]
ContextPath = Annotated[str, msgspec.Meta(max_length=8_192, pattern=r"^[^\u0000\u001f]*$")]
Confidence = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Words = Annotated[str, msgspec.Meta(max_length=1_000)]
Moment = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_MS)]
Mode = Literal["off", "observe", "act"]

BEGIN_KEY: Final = b"log"
LARGEST_NUMBER: Final = 10**12
"""Of a log. Numbers are Unix seconds, or one above the number before; see `CommandState`."""


class ThresholdOverride(msgspec.Struct, tag_field="set", tag="threshold", kw_only=True):
    """A threshold set by hand for one context and all below it, in the place of what is learned.

    `path` is the context's, "" for the whole workflow type; `tool` null is every tool. A threshold
    that is null is not overridden. From `until` (Unix ms) on it is as if it had not been set.
    `at`: when it was set, Unix ms.
    """

    tenant: Identifier
    workflow_type: Identifier
    path: ContextPath = ""
    tool: Identifier | None = None
    speculate: Confidence | None = None
    suggest: Confidence | None = None
    until: Moment | None = None
    by: Words = ""
    reason: Words = ""
    at: Moment


class ModeCommand(msgspec.Struct, tag_field="set", tag="mode", kw_only=True):
    """How far executors may go: `off`, `observe` (log, start nothing) or `act`.

    `tenant` null is everybody, `agent` null every agent of the tenant. `at`: Unix ms.
    """

    mode: Mode
    tenant: Identifier | None = None
    agent: Identifier | None = None
    by: Words = ""
    reason: Words = ""
    at: Moment


class Begin(msgspec.Struct, tag_field="set", tag="log", kw_only=True):
    """Which life of this log it is: larger than that of any before, whose offsets began at 0 too.

    Written when the topic is created, after what earlier commands left in Redis.
    """

    number: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_NUMBER)]


Command = ThresholdOverride | ModeCommand
_decode = msgspec.json.Decoder(ThresholdOverride | ModeCommand | Begin).decode


class CommandTarget(NamedTuple):
    """What is served as a whole: the overrides of a workflow type, or the modes of a tenant.

    `tenant` "" is everybody, which only modes know; a place of modes has no workflow type.
    """

    kind: Literal["threshold", "mode"]
    tenant: str
    workflow_type: str = ""


class Version(NamedTuple):
    """Of what is served: the log's number and an offset in it; the higher pair is the newer."""

    number: int
    offset: int


def command_key(command: Command | Begin) -> bytes:
    """Return the key of a command's record: it names what is set, so a later one replaces it."""
    match command:
        case ThresholdOverride():
            parts = ["threshold", command.tenant, command.workflow_type, command.path]
            parts.append(command.tool or "")
        case ModeCommand():
            parts = ["mode", command.tenant or "", command.agent or ""]
        case Begin():
            return BEGIN_KEY
    return SEPARATOR.join(parts).encode()


def target_of(key: bytes) -> CommandTarget:
    """Return where the thing that a key names is served. Raises `ValueError`."""
    match key.decode().split(SEPARATOR):
        case ["threshold", tenant, workflow_type, _path, _tool]:
            return CommandTarget("threshold", tenant, workflow_type)
        case ["mode", tenant, _agent]:
            return CommandTarget("mode", tenant)
    raise ValueError(f"no command has the key {key!r:.200}")


def _name_within_target(key: bytes) -> str:
    """Return the name, within its place, of what a key names; see `CommandState.last_offsets`."""
    kind, *_place, last = key.decode().split(SEPARATOR)
    if kind == "threshold":
        return CommandState.name_of_override(_place[-1], last)
    return f"agent/{last}" if last else "*"


def encode_command(command: Command | Begin) -> bytes:
    """Return a command's record."""
    return msgspec.json.encode(command)


def decode_command(raw: bytes) -> Command | Begin:
    """Return the command of a record. Raises `ValueError`, which says what is wrong."""
    try:
        command: Command | Begin = _decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not a command: {error}") from error
    if isinstance(command, ThresholdOverride):
        if command.speculate is None and command.suggest is None:
            raise ValueError("an override sets speculate, suggest or both")
        if command.path and workflow_type_of(command.path) != command.workflow_type:
            raise ValueError(f"the path {command.path!r:.200} is of another workflow type")
    elif isinstance(command, ModeCommand) and command.agent and not command.tenant:
        raise ValueError("a mode of one agent names its tenant")
    return command


class CommandState:
    """What is in force after a prefix of the log."""

    def __init__(self, newest: int = LARGEST_NUMBER) -> None:
        """`newest`: the largest number that this log can have by now."""
        self._newest = newest
        self.number: int | None = None
        """Of the log; None until its beginning is complete."""
        self.begun = -1
        """Offset of the record that completed the beginning. What stands before it was copied from
        Redis: no command was given there."""
        self._commands: defaultdict[CommandTarget, dict[bytes, Command]] = defaultdict(dict)
        self._offsets: dict[CommandTarget, int] = {}
        self._last_offsets: defaultdict[CommandTarget, dict[str, int]] = defaultdict(dict)
        """Offset of the newest record about each thing, be it that it is no longer set."""
        self._read = -1
        self.read_to = 0
        """Offset up to which (not including) the log was read."""

    def apply(self, key: bytes | None, value: bytes | None, offset: int) -> CommandTarget | None:
        """Take the next record; return the place where something changed, if any.

        No value: what the key names is no longer set. Raises `ValueError` for what is no command;
        nothing is changed then. A log's number never falls: Redis would refuse all that is served
        under a smaller one. The same number again is of two that began the log at once.
        """
        self._read = offset
        if key is None:
            raise ValueError("a command has a key")
        command = None if value is None else decode_command(value)
        if command is not None and command_key(command) != key:
            raise ValueError(f"the key {key!r:.200} is not the one of its command")
        if isinstance(command, Begin):
            self._begin(command.number, offset)
            return None
        place = target_of(key)
        if command is None:
            self._commands[place].pop(key, None)
        else:
            self._commands[place][key] = command
        self._offsets[place] = self._last_offsets[place][_name_within_target(key)] = offset
        return place

    def _begin(self, number: int, offset: int) -> None:
        if number > self._newest:
            raise ValueError(f"the log cannot have the number {number} yet")
        if self.number is not None and number < self.number:
            raise ValueError(f"the log has the number {self.number}, which is above {number}")
        self.number, self.begun = number, offset

    def __contains__(self, key: bytes) -> bool:
        return any(key in at for at in self._commands.values())

    @property
    def commands(self) -> list[Command]:
        """All that is set, also what has expired."""
        return [each for at in self._commands.values() for each in at.values()]

    @property
    def targets(self) -> list[CommandTarget]:
        """Every place that the log says something about, be it that nothing is set any more."""
        return list(self._offsets)

    def version(self, place: CommandTarget) -> Version:
        """Return the version of what is served at a place.

        Where the log says nothing of it (compaction may have taken what it said) that is so up to
        the last record. Raises `LookupError` where the log's beginning is not complete.
        """
        if self.number is None:
            raise LookupError("the log of commands has no beginning yet")
        return Version(self.number, self._offsets.get(place, self._read))

    def last_offsets(self, place: CommandTarget) -> Mapping[str, int]:
        """Return the offset of the newest record about each thing at a place.

        A mode's name is its field; an override's is `name_of_override`.
        """
        return self._last_offsets.get(place, {})

    @staticmethod
    def name_of_override(path: str, tool: str | None) -> str:
        """Return the name of an override in `last_offsets`."""
        return f"{path}{SEPARATOR}{tool or ''}"

    def _at(self, place: CommandTarget) -> Iterable[Command]:
        return self._commands.get(place, {}).values()

    def overrides(self, place: CommandTarget, now: int) -> list[ThresholdOverride]:
        """Return the overrides in force at `now` (Unix ms), in an order of their own."""
        found = [
            each
            for each in self._at(place)
            if isinstance(each, ThresholdOverride) and in_force(each, now)
        ]
        return sorted(found, key=command_key)

    def modes(self, place: CommandTarget) -> dict[str, Mode]:
        """Return the modes of a tenant by field: `*`, and `agent/AGENT_ID`."""
        found = {
            f"agent/{each.agent}" if each.agent else "*": each.mode
            for each in self._at(place)
            if isinstance(each, ModeCommand)
        }
        return dict(sorted(found.items()))

    def expired(self, since: int, now: int) -> set[CommandTarget]:
        """Return the places where an override ended after `since` and by `now`, in Unix ms."""
        return {
            CommandTarget("threshold", each.tenant, each.workflow_type)
            for each in self.commands
            if isinstance(each, ThresholdOverride)
            and each.until is not None
            and since < each.until <= now
        }


def in_force(command: Command, now: int) -> bool:
    """Return whether a command has not expired at `now`, in Unix ms."""
    until = command.until if isinstance(command, ThresholdOverride) else None
    return until is None or now < until


def served_overrides(overrides: Iterable[ThresholdOverride]) -> bytes:
    """Return the JSON array that readers are served (docs/contracts.md, "Redis")."""
    names = ("path", "tool", "speculate", "suggest", "until", "by", "reason")
    return msgspec.json.encode([{name: getattr(o, name) for name in names} for o in overrides])
