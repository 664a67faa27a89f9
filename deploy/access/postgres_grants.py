"""Writes the rights in Postgres as SQL: the roles and grants that `headstart migrate` makes."""

from __future__ import annotations

from collections.abc import Sequence

from deploy.access.rights import Right
from sinks.postgres.memory_schema import grants_of_roles


def postgres_statements(given: Sequence[Right]) -> str:
    """Return SQL that makes the roles if they are missing, and grants them their rights.

    Run it as a superuser, in the database, after `headstart migrate`. The roles have no password.
    """
    roles = dict.fromkeys(each.name for each in given if each.kind == "role")
    comments = [
        f"-- {role}: " + ", ".join(each.identity for each in given if each.name == role)
        for role in roles
    ]
    return "\n".join([*comments, *grants_of_roles()]) + "\n"
