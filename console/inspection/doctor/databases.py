"""Checks that Postgres and Redis answer, are writable and have this version's schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from console.inspection.doctor.findings import ERROR, OK, WARNING, Finding
from console.inspection.doctor.isolation import check_isolation
from console.inspection.doctor.postgres_hosts import check_hosts
from console.inspection.error_text import short_error
from headstart.scrubbing.masking import masked_address
from sinks.connections import (
    DatabaseUnreachable,
    connect_postgres,
    postgres_address,
    redis_client,
)
from sinks.postgres.migrate import MigrationError, pending
from sinks.postgres.rights import missing_rights
from sinks.redis.masters import infos, key_of_each, times
from sinks.redis.served_modes import ServedMode, unsound_modes
from sinks.redis_errors import REDIS
from sinks.service_errors import POSTGRES


async def check_postgres(dsn: str, now: Callable[[], float]) -> tuple[list[Finding], float | None]:
    """Return the findings, and its clock minus ours, in seconds."""
    at = postgres_address(dsn)
    try:
        async with await connect_postgres(dsn) as connection:
            began = now()
            row = await (
                await connection.execute(
                    "SELECT extract(epoch FROM clock_timestamp())::float8, "
                    "current_setting('server_version'), "
                    "pg_is_in_recovery() OR current_setting('transaction_read_only')::bool"
                )
            ).fetchone()
            assert row is not None
            ahead = row[0] - (began + now()) / 2
            lacking, role = await missing_rights(connection), connection.info.user
    except Exception as error:
        return [_away("postgres", at, error, POSTGRES), *await check_hosts(dsn)], None
    found = [Finding("postgres", OK, f"{at} answers, version {row[1]}")]
    if row[2]:
        what = f"{at} is read-only: it may be a standby"
        found.append(Finding("postgres", ERROR, what, "name the primary: --postgres"))
    if lacking:
        what = f"the role {role} lacks rights to create partitions or to write"
        remedy = f"run as a superuser or the owner: {'; '.join(lacking)}"
        found.append(Finding("postgres", ERROR, what, remedy))
    return [*found, *await check_hosts(dsn), *await _schema(dsn)], ahead


async def _schema(dsn: str) -> list[Finding]:
    """Return what is wrong with the schema; where it is old, the migration isolates tenants."""
    try:
        missing = await pending(dsn)
    except MigrationError as error:
        found = Finding("schema", ERROR, *_split(str(error)))
    except Exception as error:
        what = f"cannot be read: {short_error(error)}"
        found = Finding("schema", ERROR, what, "see Postgres' log")
    else:
        if missing:
            what = f"is old: {', '.join(missing)} not applied"
            remedy = (
                "start `headstart up` or `headstart worker episodes`: either brings it up to date"
            )
            return [Finding("schema", ERROR, what, remedy)]
        found = Finding("schema", OK, "is the newest")
    return [found, *await check_isolation(dsn)]


def _split(message: str) -> tuple[str, str]:
    what, _, remedy = message.rpartition(": ")
    return (what, remedy) if what else (message, "")


async def check_redis(url: str, now: Callable[[], float]) -> tuple[list[Finding], float | None]:
    """Return the findings, and its clock minus ours, in seconds.

    Of a cluster every master is checked; the clock is the one that differs most.
    """
    at = masked_address(url)
    try:
        async with redis_client(url) as client:
            every = await infos(client)
            began = now()
            clocks = await times(client)
            middle = (began + now()) / 2
            keys = await key_of_each(client, "headstart:doctor")
            refused = {name: await _write_refused(client, key) for name, key in keys.items()}
            modes = await unsound_modes(client)
    except Exception as error:
        return [_away("redis", at, error, REDIS)], None
    ahead = max((seconds + micros / 1e6 - middle for seconds, micros in clocks), key=abs)
    found = []
    for name, info in every.items():
        found += _of_server(f"{at}, master {name}" if name else at, info, refused.get(name))
    return [*found, *map(_no_mode, modes)], ahead


def _of_server(at: str, info: dict[str, Any], refused: str | None) -> list[Finding]:
    """Return the findings of one server, or one master of a cluster."""
    version = info.get("valkey_version") or info.get("redis_version")
    found = [Finding("redis", OK, f"{at} answers, version {version}")]
    if refused is not None:
        found = [_unwritable(at, info, refused)]
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy.startswith("allkeys"):
        what = f"{at} evicts thresholds and modes when memory is short ({policy})"
        found.append(Finding("redis", WARNING, what, "set maxmemory-policy noeviction"))
    return found


def _no_mode(served: ServedMode) -> Finding:
    what = f"serves the mode {served.stored!r} for {served.owner}: executors treat it as off"
    remedy = "`headstart config set mode` sets off, observe or act"
    return Finding("redis", ERROR, what, remedy)


async def _write_refused(client: Any, key: str) -> str | None:
    """Return why Redis refuses writes; tries to delete a key that does not exist."""
    from redis.exceptions import ResponseError

    try:
        await client.delete(key)
    except ResponseError as error:
        return str(error)
    return None


def _unwritable(at: str, info: dict[str, Any], refused: str) -> Finding:
    if info.get("role") != "master":
        primary = f"{info.get('master_host')}:{info.get('master_port')}"
        what = f"{at} is read-only: it is a replica of {primary}"
        return Finding("redis", ERROR, what, f"name the primary: --redis redis://{primary}/0")
    remedy = "see Redis' log and its disk; the user needs writes to headstart:*"
    return Finding("redis", ERROR, f"{at} is read-only: {refused}", remedy)


def _away(service: str, at: str, error: Exception, setting: str) -> Finding:
    remedy = f"start it (`headstart up`), or name yours: {setting}"
    if isinstance(error, DatabaseUnreachable) and error.trouble is not None:
        remedy = error.trouble.remedy
    return Finding(service, ERROR, f"{at}: {short_error(error)}", remedy)
