"""Overrides and modes as commands, and the state that follows from the log of them. Pure.

`headstart.commands` is the source of truth for overrides and modes; Redis only serves them. The
topic has one partition, so of two commands with the same key the later one counts. Commands change
what is served, never what is learned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal, NamedTuple
from urllib.parse import unquote

import msgspec

from headstart.events.schema import MAX_IDENTIFIER
from headstart.keys import SEPARATOR, context_paths, workflow_type_of
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
"""Largest number of a log. Numbers are Unix seconds, or one above the previous number."""


class ThresholdOverride(
    msgspec.Struct, tag_field="set", tag="threshold", kw_only=True, forbid_unknown_fields=True
):
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


class ModeCommand(
    msgspec.Struct, tag_field="set", tag="mode", kw_only=True, forbid_unknown_fields=True
):
    """How far executors may go: `off`, `observe` (log, start nothing) or `act`.

    `tenant` null is everybody, `agent` null every agent of the tenant. `at`: Unix ms.
    """

    mode: Mode
    tenant: Identifier | None = None
    agent: Identifier | None = None
    by: Words = ""
    reason: Words = ""
    at: Moment


class Begin(msgspec.Struct, tag_field="set", tag="log", kw_only=True, forbid_unknown_fields=True):
    """Which life of this log it is: larger than that of any before, whose offsets began at 0 too.

    Written when the topic is created, after what earlier commands left in Redis.
    """

    number: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_NUMBER)]


Command = ThresholdOverride | ModeCommand
_decode = msgspec.json.Decoder(ThresholdOverride | ModeCommand | Begin).decode


class CommandTarget(NamedTuple):
    """One Redis hash that commands change: the overrides of a workflow type, or a tenant's modes.

    `tenant` "" stands for all tenants (modes only); a target of modes has no workflow type.
    """

    kind: Literal["threshold", "mode"]
    tenant: str
    workflow_type: str = ""


class Version(NamedTuple):
    """Version of a served target: the log's number and an offset in it; the higher is newer."""

    number: int
    offset: int


def command_key(command: Command | Begin) -> bytes:
    """Return the key of a command's record. A later command with the same key replaces it."""
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
    """Return the target that a record's key belongs to. Raises `ValueError`."""
    match key.decode().split(SEPARATOR):
        case ["threshold", tenant, workflow_type, _path, _tool]:
            return CommandTarget("threshold", tenant, workflow_type)
        case ["mode", tenant, _agent]:
            return CommandTarget("mode", tenant)
    raise ValueError(f"{key!r:.200} is not the key of a command")


def _name_within_target(key: bytes) -> str:
    """Return what a key names within its target; see `CommandState.last_offsets`."""
    kind, *parts, last = key.decode().split(SEPARATOR)
    if kind == "threshold":
        return CommandState.name_of_override(parts[-1], last)
    return f"agent/{last}" if last else "*"


def encode_command(command: Command | Begin) -> bytes:
    """Return a command as JSON."""
    return msgspec.json.encode(command)


def decode_command(raw: bytes) -> Command | Begin:
    """Return the command in a record's value. Raises `ValueError` with the reason.

    An unknown field is refused: it may be a condition, and without it the command would hold more
    widely than it was set. So is a path that no context can have: nothing could unset it.
    """
    try:
        command: Command | Begin = _decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not a command: {error}") from error
    if isinstance(command, ThresholdOverride):
        if command.speculate is None and command.suggest is None:
            raise ValueError("an override sets speculate, suggest or both")
        if command.path and workflow_type_of(command.path) != command.workflow_type:
            raise ValueError(f"the path {command.path!r:.200} is of another workflow type")
        if command.path and _canonical(command.path) != command.path:
            raise ValueError(
                f"no context has the path {command.path!r:.200}: it is level=value for each level, "
                "with / between them, values percent-encoded"
            )
    elif isinstance(command, ModeCommand) and command.agent and not command.tenant:
        raise ValueError("a mode of one agent names its tenant")
    return command


def _canonical(path: str) -> str:
    """Return a path as `context_paths` writes that of its levels and values."""
    (_, workflow_type), *levels = [
        (unquote(name), unquote(value))
        for name, _, value in (part.partition("=") for part in path.split("/"))
    ]
    names = [name for name, _ in levels]
    return context_paths(workflow_type, dict(levels).get, names)[-1]


class CommandState:
    """The commands in force after a prefix of the log."""

    def __init__(self, newest: int = LARGEST_NUMBER) -> None:
        """`newest`: the largest number that this log can have by now."""
        self._newest = newest
        self.number: int | None = None
        """The log's number; None until its `Begin` record was read."""
        self.begun = -1
        """Offset of the `Begin` record. Records before it were copied from Redis."""
        self._commands: defaultdict[CommandTarget, dict[bytes, Command]] = defaultdict(dict)
        self._offsets: dict[CommandTarget, int] = {}
        self._last_offsets: defaultdict[CommandTarget, dict[str, int]] = defaultdict(dict)
        """Offset of the newest record of each name, tombstones included."""
        self._read = -1
        self.read_to = 0
        """Offset up to which the log was read, exclusive."""
        self.refused: dict[int, str] = {}
        """Reasons of invalid records by offset, if the whole log was read at once."""

    def apply(self, key: bytes | None, value: bytes | None, offset: int) -> CommandTarget | None:
        """Apply the next record; return the target that changed, if any.

        A record without a value unsets its key. Raises `ValueError` for an invalid record, and
        changes nothing then. A log's number never falls, because Redis refuses versions with a
        smaller one. It may repeat: two processes began the log at once.
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
        target = target_of(key)
        if command is None:
            self._commands[target].pop(key, None)
        else:
            self._commands[target][key] = command
        self._offsets[target] = self._last_offsets[target][_name_within_target(key)] = offset
        return target

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
        """All commands that are set, expired ones included."""
        return [each for at in self._commands.values() for each in at.values()]

    @property
    def targets(self) -> list[CommandTarget]:
        """Every target with a record in the log, also those where nothing is set any more."""
        return list(self._offsets)

    def version(self, target: CommandTarget) -> Version:
        """Return the version of a target.

        A target without records (compaction may have removed them) has the version of the last
        record read. Raises `LookupError` before the `Begin` record.
        """
        if self.number is None:
            raise LookupError("the log of commands has no beginning yet")
        return Version(self.number, self._offsets.get(target, self._read))

    def last_offsets(self, target: CommandTarget) -> Mapping[str, int]:
        """Return the offset of the newest record of each name in a target.

        A mode's name is its field; an override's is `name_of_override`.
        """
        return self._last_offsets.get(target, {})

    @staticmethod
    def name_of_override(path: str, tool: str | None) -> str:
        """Return the name of an override in `last_offsets`."""
        return f"{path}{SEPARATOR}{tool or ''}"

    def overrides(self, target: CommandTarget, now: int) -> list[ThresholdOverride]:
        """Return the overrides in force at `now` (Unix ms), ordered by key."""
        found = [
            each
            for each in self._commands.get(target, {}).values()
            if isinstance(each, ThresholdOverride) and in_force(each, now)
        ]
        return sorted(found, key=command_key)

    def modes(self, target: CommandTarget) -> dict[str, Mode]:
        """Return the modes of a tenant by field: `*`, and `agent/AGENT_ID`."""
        found = {
            f"agent/{each.agent}" if each.agent else "*": each.mode
            for each in self._commands.get(target, {}).values()
            if isinstance(each, ModeCommand)
        }
        return dict(sorted(found.items()))

    def expired(self, since: int, now: int) -> set[CommandTarget]:
        """Return the targets where an override expired in (`since`, `now`], Unix ms."""
        return {
            CommandTarget("threshold", each.tenant, each.workflow_type)
            for each in self.commands
            if isinstance(each, ThresholdOverride)
            and each.until is not None
            and since < each.until <= now
        }


def in_force(command: Command, now: int) -> bool:
    """Return whether a command has not expired at `now`, Unix ms."""
    until = command.until if isinstance(command, ThresholdOverride) else None
    return until is None or now < until


def served_overrides(overrides: Iterable[ThresholdOverride]) -> bytes:
    """Return overrides as the JSON array in Redis (docs/reference/redis.md)."""
    names = ("path", "tool", "speculate", "suggest", "until", "by", "reason")
    return msgspec.json.encode([{name: getattr(o, name) for name in names} for o in overrides])
