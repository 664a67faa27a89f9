"""Every statement that reads a table with tenant data names the tenant, or is listed here.

Row-level security is the second line: roles that go round it (owner, sink, worker) have this one.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.sinks.isolation.statement_texts import Statement, is_optional, statements, without_tenant

ALL_TENANTS: Final = {
    "memory.sql take": "the memory worker takes runs of all tenants; each row names its own",
    "memory.sql drop": "runs that the memory worker has taken; each names its own tenant",
    "backup.sql later_history": "a backup has all tenants; is there history after its offsets?",
    "memory.sql lag": "how many rows wait, of all tenants together",
    "vectors.sql missing": "the memory worker fills in vectors of all tenants, in their order",
    "vectors.sql count_missing": "how many vectors a model lacks, of all tenants together",
    "policies.sql due": "the memory worker goes through all tenants; joined by each one's name",
    "merging.sql next_tenant": "the maintenance goes through all tenants; the name of the next",
    "merging.sql oldest_cold": "the age of the oldest packed run, of all tenants together",
    "quarantine.sql count": "how many episodes are quarantined, of all tenants together",
    "bench/support/merged_storage.py": "a sum of bytes over all rows",
    "policies.sql judged_tenants": "the names of tenants with new judgements, for the worker",
    "policies.sql forget_retrievals": "old retrievals of all tenants are deleted",
    "queries.sql estimate_events": "a number for all tenants together",
    "bench/support/purge_measuring.py": "a sum over the rows of a made-up user",
    "purges.sql need_rights": "asks whether the role may delete; deletes nothing",
    "notices.sql unsent": "the history worker sends the notices of its partitions",
    "notices.sql mark_sent": "the same notices, by their ids",
    "notices.sql forget_sent": "old notices of all tenants are deleted",
    "encryption.sql to_rotate": "the keys of all tenants are wrapped again, in their order",
    "encryption.sql stands": "counts keys by master key; one tenant of each is checked",
    "0010_tenant_isolation.sql add_event_partition": "moves all rows of a day to its partition",
    "bench/queries.py": "a made-up table; measures what an index is worth",
}
"""Statements that read all tenants, and why."""
IF_NAMED: Final = {
    "memory.sql fill_outbox", "memory.sql episodes", "memory.sql totals", "memory.sql outcomes",
    "memory.sql concepts", "memory.sql domains", "memory.sql tools", "memory.sql agents",
    "memory.sql related_concepts",
    "archive.sql archived", "archive.sql count_archived", "archive.sql partly_archived",
    "merging.sql outlook", "quarantine.sql batches",
    "notices.sql newest", "packing.sql candidates", "packing.sql outlook", "purges.sql purges",
    "encryption.sql listed",
}  # fmt: skip
"""Commands of operators, whose --tenant may be left out; `tenant_scope` begins where it is not."""

ALL = list(statements())


def test_every_statement_names_the_tenant() -> None:
    """graphiti #632: the group was ignored for some kinds of rows."""
    assert len(ALL) > 100
    missing = {each.place: without_tenant(each.text) for each in ALL if without_tenant(each.text)}
    assert {place: tables for place, tables in missing.items() if place not in ALL_TENANTS} == {}
    assert set(ALL_TENANTS) <= missing.keys(), "an entry is not needed any more"


def test_where_the_tenant_may_be_left_out_is_listed() -> None:
    assert {each.place for each in ALL if is_optional(each.text)} == IF_NAMED


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("SELECT * FROM episodes WHERE id = %s", ["episodes"]),
        ("SELECT * FROM episodes WHERE tenant = %s", []),
        ("SELECT * FROM episodes -- WHERE tenant = %s", ["episodes"]),
        ("DELETE FROM memory_audit", ["memory_audit"]),
        ("UPDATE notices SET sent = now() WHERE id = %s", ["notices"]),
        ("UPDATE episodes e SET state = 'live' WHERE e.tenant = %s", []),
        ("SELECT * FROM episodic_events_default", ["episodic_events"]),
        (
            "SELECT * FROM episodes e JOIN episode_vectors v ON v.tenant = e.tenant",
            ["episodes", "episode_vectors"],
        ),
        (
            "SELECT * FROM episodes e JOIN episode_vectors v ON v.tenant = e.tenant"
            " WHERE v.tenant = %s",
            [],
        ),
        (
            "SELECT * FROM episodes e JOIN episode_vectors v ON v.id = e.id WHERE e.tenant = %s",
            ["episode_vectors"],
        ),
        (
            "SELECT * FROM unnest(%s) AS of (tenant) JOIN episodes e ON e.tenant = of.tenant",
            [],
        ),
        ("INSERT INTO memory_audit (tenant) VALUES (%s)", []),
        ("GRANT SELECT ON episodes, notices TO somebody", []),
    ],
)
def test_a_statement_without_its_tenant_is_found(text: str, tables: list[str]) -> None:
    assert without_tenant(text) == tables


def test_what_is_broken_in_the_repository_would_be_found() -> None:
    """Each statement that names the tenant fails without that line."""
    named = [each for each in ALL if each.place == "retrieval.sql equal_query"]
    (whole,) = named
    broken = Statement(whole.place, whole.text.replace("e.tenant = %(tenant)s AND", ""))
    assert without_tenant(whole.text) == []
    assert without_tenant(broken.text) == ["episodes"]
