"""Checks each host of an address of Postgres: one takes writes, the others can take over."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import psycopg

from console.inspection.doctor.findings import ERROR, OK, WARNING, Finding
from console.inspection.error_text import short_error
from sinks.connections import address_of_each_host, connect_postgres

_ROLE = "SELECT pg_is_in_recovery(), current_setting('synchronous_standby_names')"


class _Host(NamedTuple):
    """What a host says. `waits_for`: the standbys that its commits wait for."""

    at: str
    standby: bool = False
    waits_for: str = ""
    error: str = ""


async def check_hosts(dsn: str) -> list[Finding]:
    """Return the findings on each of several hosts; none if there is one."""
    try:
        addresses = address_of_each_host(dsn)
    except psycopg.ProgrammingError:
        return []  # connecting reports it
    if len(addresses) == 1:
        return []
    hosts = await asyncio.gather(*(_ask(at, one) for at, one in addresses.items()))
    return [*map(_finding, hosts), *_two_primaries(hosts)]


async def _ask(at: str, dsn: str) -> _Host:
    try:
        async with await connect_postgres(dsn) as connection:
            row = await (await connection.execute(_ROLE)).fetchone()
    except Exception as error:  # whatever the error, it could not take over
        return _Host(at, error=short_error(error))
    return _Host(at, *row) if row else _Host(at)


def _finding(host: _Host) -> Finding:
    if host.error:
        what = f"{host.at}: {host.error}; it cannot take over"
        return Finding("postgres", WARNING, what, "start it, or leave it out of the address")
    if host.standby:
        return Finding("postgres", OK, f"{host.at} is a standby")
    waits_for = host.waits_for or "no standby"
    return Finding("postgres", OK, f"{host.at} takes writes, and a commit waits for {waits_for}")


def _two_primaries(hosts: list[_Host]) -> list[Finding]:
    primaries = [host.at for host in hosts if not host.standby and not host.error]
    if len(primaries) < 2:
        return []
    what = f"{' and '.join(primaries)} are primaries: what one stores is not in the other"
    remedy = "stop all but one, and make standbys of them again (pg_rewind)"
    return [Finding("postgres", ERROR, what, remedy)]
