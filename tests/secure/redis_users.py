"""Users of the processes in a Redis with TLS, with the rights that `topics acl` prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deploy.access.redis_acls import redis_commands
from deploy.access.rights import rights
from deploy.local.secure.programs import knows_setinfo, redis_server
from tests.secure.identities import REDIS_PASSWORD, USERS


def make_users(*servers: Callable[..., Any]) -> None:
    """Make them at each server. `servers`: each runs a command."""
    known = knows_setinfo(redis_server())
    given = [each for each in rights() if known or each.name != "client|setinfo"]
    for command in redis_commands(given, USERS):
        for run in servers:
            run(*command.split(), f">{REDIS_PASSWORD}")


def login(identity: str) -> str:
    """Return the `USER:PASSWORD` of a process."""
    return f"{USERS[identity]}:{REDIS_PASSWORD}"
