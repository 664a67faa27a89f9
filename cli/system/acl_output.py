"""Checks the options of `headstart topics acl`, and prints its table in the form that they name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from deploy.access.kafka_acls import kafka_commands, strimzi_users
from deploy.access.postgres_grants import postgres_statements
from deploy.access.redis_acls import redis_commands
from deploy.access.rights import DEFAULT_USERS, IDENTITIES, Right
from settings.suggestions import did_you_mean


def checked_processes(names: Iterable[str]) -> list[str]:
    """Return the names. Raises `LookupError` for one that is no process."""
    for name in names:
        if name not in IDENTITIES:
            nearest = did_you_mean(name, IDENTITIES)
            raise LookupError(
                f"there is no process {name!r:.80}{nearest}; there are {', '.join(IDENTITIES)}"
            )
    return list(names)


def users_of(given: Iterable[str]) -> dict[str, str]:
    """Return the user of each process; `given`: those that differ, as PROCESS=NAME.

    Raises `ValueError` for another form, and `LookupError` for an unknown process.
    """
    users = dict(DEFAULT_USERS)
    for each in given:
        process, equals, name = each.partition("=")
        if not equals or not name.isprintable() or not name:
            raise ValueError(f"--user must be PROCESS=NAME, not {each!r:.80}")
        users[checked_processes([process])[0]] = name
    return users


def printed_rights(
    form: str, found: Sequence[Right], users: Mapping[str, str], kafka: str, cluster: str
) -> str:
    """Return the rights as text; `form`: a value of `AclFormat`.

    Raises `ValueError` for a name that the form cannot express.
    """
    if form == "kafka":
        return kafka_commands(found, users, kafka)
    if form == "strimzi":
        return strimzi_users(found, users, cluster)
    if form == "redis":
        return "\n".join(redis_commands(found, users)) + "\n"
    return postgres_statements(found)
