"""Writes the rights in Redis as `ACL SETUSER`, which leaves the users' passwords as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from deploy.access.rights import REDIS, Right

_SIGNS: Final = {
    ("read", "key"): "%R~",
    ("write", "key"): "~",
    ("subscribe", "channel"): "&",
    ("run", "command"): "+",
}


def redis_commands(given: Sequence[Right], users: Mapping[str, str]) -> list[str]:
    """Return a command for each user, for `redis-cli`; Redis 7.2 or newer: `%R~`, `client|setinfo`.

    A new user has no password, so it cannot log in before one is set. Raises `ValueError` for a
    name that Redis refuses.
    """
    rules: dict[str, dict[str, None]] = {}
    for each in given:
        if each.kind in REDIS:
            user = users[each.identity]
            if any(character.isspace() for character in user) or not user:
                raise ValueError(f"{user!r:.80} cannot name a user of Redis: it contains a space")
            rule = f"{_SIGNS[each.operation, each.kind]}{each.name}"
            rules.setdefault(user, {})[rule] = None
    first = "on resetkeys resetchannels -@all"
    return [f"ACL SETUSER {user} {first} {' '.join(some)}" for user, some in rules.items()]
