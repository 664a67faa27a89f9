"""Addresses of Postgres with several hosts: how they are read, shown and explained."""

from __future__ import annotations

import asyncio

import pytest
from psycopg.conninfo import conninfo_to_dict

from console.inspection.doctor.databases import check_postgres
from deploy.local.accepted import why_not
from deploy.local.readiness import postgres
from sinks.connections import (
    PostgresUnreachable,
    address_of_each_host,
    connect_postgres,
    postgres_address,
    postgres_options,
)

SECRET = "hush-hush"
PAIR = f"postgresql://ann:{SECRET}@one:5433,two/db?sslmode=verify-full"


def at_port(dsn: str) -> str:
    return str(conninfo_to_dict(dsn)["port"])


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        (PAIR, "one:5433,two:5432/db"),
        ("host=one,two port=1,2 dbname=db", "one:1,two:2/db"),
        ("host=one,two port=7 dbname=db", "one:7,two:7/db"),
        ("hostaddr=10.0.0.1,10.0.0.2 dbname=db", "10.0.0.1:5432,10.0.0.2:5432/db"),
        ("postgresql:///db", "localhost:5432/db"),
    ],
)
def test_each_host_is_shown_with_its_port(dsn: str, shown: str) -> None:
    assert postgres_address(dsn) == shown
    assert why_not("postgres", dsn) is None


def test_of_several_hosts_the_one_that_takes_writes_is_wanted() -> None:
    assert postgres_options(PAIR)["target_session_attrs"] == "read-write"
    assert "target_session_attrs" not in postgres_options("postgresql://one/db")
    chosen = postgres_options(f"{PAIR}&target_session_attrs=prefer-standby&connect_timeout=1")
    assert not chosen.keys() & {"target_session_attrs", "connect_timeout"}


def test_each_host_has_an_address_of_its_own() -> None:
    each = address_of_each_host(f"{PAIR}&hostaddr=10.0.0.1,10.0.0.2")
    assert list(each) == ["one:5433", "two:5432"]
    second = conninfo_to_dict(each["two:5432"])
    assert (second["host"], second["hostaddr"], second["port"]) == ("two", "10.0.0.2", "5432")
    assert (second["target_session_attrs"], second["sslmode"]) == ("any", "verify-full")


def test_a_host_that_is_away_is_passed_over(postgres_dsn: str, closed: str) -> None:
    dsn = f"postgresql://postgres@{closed},127.0.0.1:{at_port(postgres_dsn)}/postgres"

    async def port() -> int:
        async with await connect_postgres(dsn) as connection:
            return connection.info.port

    assert str(asyncio.run(port())) == at_port(postgres_dsn)
    postgres(dsn)
    found, _ = asyncio.run(check_postgres(dsn, lambda: 0.0))
    said = {each.what: each.level for each in found}
    assert said[f"{closed}: nothing listens there; it cannot take over"] == "warning"


def test_what_a_host_refuses_is_said_with_its_name(postgres_dsn: str, closed: str) -> None:
    there = f"127.0.0.1:{at_port(postgres_dsn)}"
    dsn = f"postgresql://no_such_user:{SECRET}@{closed},{there}/postgres"
    with pytest.raises(PostgresUnreachable, match=f"{there}: the password or user is wrong") as no:
        asyncio.run(connect_postgres(dsn))
    assert no.value.trouble is not None
    assert no.value.trouble.refused
    assert SECRET not in str(no.value)


def test_hosts_and_ports_of_different_number_are_named() -> None:
    with pytest.raises(PostgresUnreachable, match="neither one port nor as many as hosts"):
        asyncio.run(connect_postgres("host=one,two port=1,2,3 dbname=db"))
