"""What the table of rights must never allow, and what the scripts in Redis need."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sinks.redis
from cli.system.acl_output import checked_processes, users_of
from deploy.access.kafka_acls import kafka_commands
from deploy.access.redis_acls import redis_commands
from deploy.access.rights import IDENTITIES, OPERATOR, rights
from topics.catalogue import CHANGELOG, COMMANDS, EPOCHS, MODELS, SPANS_GROUP, THRESHOLDS

USERS = users_of([])


def writers(topic: str) -> set[str]:
    return {each.identity for each in rights("spans") if each[1:] == ("Write", "topic", topic)}


def test_state_has_one_worker_that_writes_it() -> None:
    """And the operator's `backup restore` and `topics recreate`, which no worker runs beside."""
    assert writers(CHANGELOG.name) == {"thresholds", "operator"}
    assert writers(THRESHOLDS.name) == {"thresholds", "operator"}
    assert writers(MODELS.name) == {"predictions", "operator"}
    assert writers(COMMANDS.name) == {"operator"}
    assert writers(EPOCHS.name) == {"operator"}


def test_an_executor_reads_only_the_epoch_in_kafka_and_only_reads_in_redis() -> None:
    granted = rights("spans", ["executor"])
    operations = {(each.kind, each.operation) for each in granted}
    read = [
        each for each in granted if each.kind in ("topic", "group") and each.operation != "Write"
    ]
    assert read == [("executor", "Read", "topic", EPOCHS.name)]
    assert {each for each in operations if each[0] == "key"} == {("key", "read")}
    commands = {each.name for each in granted if each.kind == "command"}
    assert commands & {"hset", "set", "del", "eval", "publish", "keys", "scan"} == set()


def test_nothing_is_granted_by_prefix_or_for_the_cluster() -> None:
    assert not [each for each in rights("spans") if each.kind in ("topic", "group") and
                ("*" in each.name or each.name.endswith((".", "-")))]  # fmt: skip


def test_the_worker_of_spans_is_there_only_if_its_topic_is_named() -> None:
    assert not rights(only=["spans"])
    assert (OPERATOR, "Describe", "group", SPANS_GROUP) in rights(), "it must have no members"
    assert ("spans", "Read", "topic", "otlp") in rights("otlp", ["spans"])


def test_scripts_use_only_commands_that_their_worker_may_run() -> None:
    folder = Path(next(iter(sinks.redis.__path__)))
    texts = [path.read_text() for path in [*folder.glob("*.lua"), *folder.glob("*.py")]]
    used = {each.lower() for text in texts for each in re.findall(r"redis\.p?call\('(\w+)'", text)}
    assert len(used) > 10
    for worker in ("thresholds", "operator"):
        assert used <= {each.name for each in rights(only=[worker]) if each.kind == "command"}


def test_users_may_be_renamed_and_shared() -> None:
    users = users_of(["thresholds=CN=worker", "history=CN=worker"])
    assert (users["thresholds"], users["history"]) == ("CN=worker", "CN=worker")
    text = kafka_commands(rights(only=["thresholds", "history"]), users, "a:1,b:2")
    assert {word for word in text.split() if word.startswith("User:")} == {"User:CN=worker"}
    assert text.count("# CN=worker") == 1


@pytest.mark.parametrize("given", ["thresholds", "thresholds=", "=x"])
def test_a_user_that_cannot_be_read_is_an_error(given: str) -> None:
    with pytest.raises((ValueError, LookupError)):
        users_of([given])


def test_an_unknown_process_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(LookupError, match="did you mean 'thresholds'"):
        checked_processes(["treshold"])
    assert checked_processes(IDENTITIES) == list(IDENTITIES)


def test_a_user_of_redis_has_no_space() -> None:
    with pytest.raises(ValueError, match="cannot name a user of Redis"):
        redis_commands(rights(only=["executor"]), {**USERS, "executor": "a b"})
