"""Every command of the server, with keys that the ACLs name and others, for each user of Redis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

import pytest
from redis import Redis

from deploy.access.rights import REDIS, Right, rights
from deploy.local import Addresses
from tests.secure.identities import USERS, Identities

WITH_USER: Final = tuple(dict.fromkeys(each.identity for each in rights() if each.kind in REDIS))
KEYS: Final = (
    "headstart:thresholds:acme:refund", "headstart:model:acme:refund", "headstart:epoch",
    "headstart:set-aside:{headstart:model:acme:refund}", "headstart:modes", "headstart:modes:acme",
    "{headstart:modes}:acme", "headstart:commands:authors", "headstart", "others",
    "others:headstart:thresholds:acme",
)  # fmt: skip
"""A key of each pattern that the ACLs have, and keys of none."""
READING: Final = {
    "get": (), "type": (), "hget": ("f",), "hmget": ("f",), "hgetall": (), "hlen": (),
    "hexists": ("f",), "hstrlen": ("f",), "hscan": ("0",),
}  # fmt: skip
WRITING: Final = {
    "set": ("v",), "del": (), "expire": ("1",), "hset": ("f", "v"), "hdel": ("f",),
}  # fmt: skip
WITHOUT_KEYS: Final = {
    "hello": (), "ping": (), "select": ("0",), "client|setname": ("x",), "scan": ("0",),
    "client|setinfo": ("lib-name", "x"), "script|load": ("return 1",), "info": (), "role": (),
    "time": (), "asking": (), "cluster|slots": (), "cluster|info": (), "cluster|nodes": (),
    "command": (), "unsubscribe": (),
}  # fmt: skip
SPECIAL: Final = {"rename", "eval", "evalsha", "publish", "subscribe"}
SHA: Final = "0" * 40


@pytest.fixture(scope="module")
def redis(plain: Addresses) -> Iterator[Any]:
    with Redis.from_url(plain.redis, decode_responses=True) as found:
        yield found


def named(granted: list[Right], kind: str) -> set[str]:
    return {each.name for each in granted if each.kind == kind}


def reaches(granted: list[Right], key: str, *, write: bool = False) -> bool:
    operations = {"write"} if write else {"read", "write"}
    return any(
        each.kind == "key" and each.operation in operations and fnmatchcase(key, each.name)
        for each in granted
    )


def expected(granted: list[Right]) -> dict[tuple[str, ...], bool]:
    """Each call of a command that some user has, and whether these rights allow it."""
    commands = named(granted, "command")
    found: dict[tuple[str, ...], bool] = {}

    def may(allowed: bool, command: str, *arguments: str) -> None:
        found[*command.split("|"), *arguments] = command in commands and allowed

    for command, more in WITHOUT_KEYS.items():
        may(True, command, *more)
    for key in KEYS:
        reads, writes = reaches(granted, key), reaches(granted, key, write=True)
        for command, more in READING.items():
            may(reads, command, key, *more)
        for command, more in WRITING.items():
            may(writes, command, key, *more)
        may(writes, "eval", "return 1", "1", key)
        may(writes, "evalsha", SHA, "1", key)
        for target in KEYS:
            may(writes and reaches(granted, target, write=True), "rename", key, target)
        heard = any(fnmatchcase(key, each) for each in named(granted, "channel"))
        may(heard, "publish", key, "x")
        may(heard, "subscribe", key)
    return found


def dry_run(redis: Any, identity: str, calls: list[tuple[str, ...]]) -> list[bool]:
    """What the server's own `ACL DRYRUN` says of each call."""
    with redis.pipeline(transaction=False) as pipeline:
        for call in calls:
            pipeline.execute_command("ACL DRYRUN", USERS[identity], *call)
        answers = pipeline.execute(raise_on_error=False)
    for call, answer in zip(calls, answers, strict=True):
        assert answer == "OK" or str(answer).startswith("User "), (call, answer)
    return [answer == "OK" for answer in answers]


def all_commands(redis: Any) -> Mapping[str, int]:
    """The arity of every command and subcommand of the server, its own name counted.

    But those that a client may send before it logs in, such as `auth`.
    """
    connection = redis.connection_pool.get_connection()
    try:
        connection.send_command("COMMAND")
        answer = connection.read_response()
    finally:
        redis.connection_pool.release(connection)
    found: dict[str, int] = {}
    for command in answer:
        for name, arity, flags, *_ in command[-1] or [command]:
            if "no_auth" not in flags:
                found[name] = arity
    return found


def test_every_command_that_is_granted_is_tried() -> None:
    known = {*READING, *WRITING, *WITHOUT_KEYS, *SPECIAL}
    assert named(rights(), "command") == known


@pytest.mark.parametrize("identity", WITH_USER)
def test_a_user_reaches_the_keys_and_channels_of_its_rights_only(
    identities: Identities, redis: Any, identity: str
) -> None:
    wanted = expected([each for each in rights() if each.identity == identity])
    calls = list(wanted)
    found = dict(zip(calls, dry_run(redis, identity, calls), strict=True))
    assert {call for call in calls if found[call] != wanted[call]} == set()
    assert set(found.values()) == {True, False}


@pytest.mark.parametrize("identity", WITH_USER)
def test_a_user_runs_no_other_command_of_the_server(
    identities: Identities, redis: Any, identity: str
) -> None:
    commands = named([each for each in rights() if each.identity == identity], "command")
    others = {
        name: arity
        for name, arity in all_commands(redis).items()
        if not {name, name.partition("|")[0]} & commands  # a command includes its subcommands
    }
    assert len(others) > 200
    assert {"config|set", "acl|setuser", "flushall", "keys", "shutdown"} <= others.keys()
    calls = [
        (*name.split("|"), *[KEYS[0]] * (abs(arity) - 1 - name.count("|")))
        for name, arity in others.items()
    ]
    found = dict(zip(others, dry_run(redis, identity, calls), strict=True))
    assert [name for name in found if found[name]] == []
