"""Where a setting comes from: a flag, the environment, the running local stack, its default."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local.config import Addresses
from deploy.local.data_dir_lock import DataDirectoryLock
from settings import Settings, SettingsError, environment, read_settings

STACK = Addresses("127.0.0.1:11", "postgresql://127.0.0.1:12/headstart", "redis://127.0.0.1:13/0")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No data directory is found by chance."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    """A data directory on which a stack runs."""
    hold = DataDirectoryLock.acquire(tmp_path / "data")
    hold.announce(STACK, {})
    yield tmp_path / "data"
    hold.release()


def test_defaults() -> None:
    found = read_settings()
    assert found == Settings()
    assert found.data == Path(".headstart")
    assert found.kafka == "127.0.0.1:9092"
    assert found.postgres == "postgresql://127.0.0.1:5432/headstart"
    assert found.redis == "redis://127.0.0.1:6379/0"
    assert (found.learner, found.levels) == ("hops", ("domain", "user_id"))
    assert (found.partitions, found.instance) == (8, "0")
    assert (found.stuck_after_s, found.health) == (30.0, "")


@pytest.mark.parametrize("name", ["kafka", "postgres", "redis"])
def test_precedence_of_an_address(
    name: str, running: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(**flags: Any) -> str:
        return str(getattr(read_settings(**flags), name))

    default = str(getattr(Settings(), name))
    assert read() == default, "another directory's stack is not used"
    assert read(data=running) == getattr(STACK, name)
    monkeypatch.setenv(f"HEADSTART_{name.upper()}", "from-environment:1")
    assert read(data=running) == "from-environment:1"
    assert read(data=running, **{name: "from-flag:1"}) == "from-flag:1"
    assert read(**{name: None}) == "from-environment:1", "None: the flag was not given"


def test_each_address_has_its_own_source(running: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADSTART_REDIS", "redis://elsewhere:1/0")
    found = read_settings(data=running, postgres="postgresql://flag/db")
    assert found.kafka == STACK.kafka
    assert found.postgres == "postgresql://flag/db"
    assert found.redis == "redis://elsewhere:1/0"


def test_an_address_equal_to_the_default_counts_as_given(running: Path) -> None:
    assert read_settings(data=running, kafka="127.0.0.1:9092").kafka == "127.0.0.1:9092"


def test_the_data_directory_may_come_from_the_environment(
    running: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADSTART_DATA", str(running))
    assert read_settings().kafka == STACK.kafka


def test_a_stack_that_has_ended_is_not_found(tmp_path: Path) -> None:
    hold = DataDirectoryLock.acquire(tmp_path / "data")
    hold.announce(STACK, {})
    hold.release()
    assert read_settings(data=tmp_path / "data").kafka == "127.0.0.1:9092"


def test_flag_before_environment_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADSTART_LEARNER", "ema")
    monkeypatch.setenv("HEADSTART_PARTITIONS", "3")
    monkeypatch.setenv("HEADSTART_LEVELS", "region, domain")
    monkeypatch.setenv("HEADSTART_UNHEARD_OF", "1")
    found = read_settings(partitions=5)
    assert (found.learner, found.partitions, found.levels) == ("ema", 5, ("region", "domain"))


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("partitions", "0", "greater than or equal to 1"),
        ("partitions", "many", "integer"),
        ("refused_ratio", "1.5", "less than or equal to 1"),
        ("refused_window", "0", "greater than or equal to 1"),
        ("refused_run", "-1", "greater than or equal to 0"),
        ("learner", "guess", "choose one of aci, always, "),
        ("instance", "a/b", "match pattern"),
        ("stuck_after_s", "-1", "greater than or equal to 0"),
        ("health", "8080", "host:port"),
        ("weights", "speed=2", "give cost=NUMBER"),
        ("weights", "cost=-1", "from 0 to 1,000,000"),
        ("feedback_weight", "-1", "greater than or equal to 0"),
        ("notices_days", "7", "greater than or equal to 8"),
        ("retrievals_days", "0.5", "greater than or equal to 1"),
        ("pack_after_days", "0.5", "at least 1, because the last day is never packed"),
        ("retention_days", "3", "at least 8, because runs are packed after a week"),
        ("keep_cases", "-1", "greater than or equal to 0"),
        ("keep_unnamed", "-1", "greater than or equal to 0"),
        ("deletion_marks_s", "0", "greater than or equal to 1"),
        ("user_cases", "-1", "greater than or equal to 0"),
        ("cases_window_s", "59", "greater than or equal to 60"),
        ("low_reward", "1", "less than 1"),
        ("weigh_floods", "maybe", "boolean"),
        ("health", "127.0.0.1:65531", "port from 1 to 65530"),
        ("health", "127.0.0.1:0", "host:port"),
    ],
)
def test_a_bad_value_names_its_setting(
    name: str, value: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsError) as from_flag:
        read_settings(**{name: value})
    monkeypatch.setenv(f"HEADSTART_{name.upper()}", value)
    with pytest.raises(SettingsError) as from_environment:
        read_settings()
    for caught in (from_flag, from_environment):
        message = str(caught.value)
        assert message.startswith(f"setting {name}: ")
        assert why in message
        assert repr(value) in message
        assert "\n" not in message


@pytest.mark.parametrize("kafka", ["user:hush@broker:9092", "b:1,user:hush@b:2", ["u:hush@b:1"]])
def test_an_address_with_a_password_is_refused_and_not_repeated(kafka: Any) -> None:
    with pytest.raises(SettingsError, match="setting kafka: ") as caught:
        read_settings(kafka=kafka)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("domain,domain", "there twice"),
        ("user", "did you mean 'user_id'"),
        ("Domain", "did you mean 'domain'"),
        ("tenant", "leave it out"),
        ("workflow_type", "leave it out"),
        ("task_id", "is no level"),
        ("domain,,user_id", "without empty parts"),
        (("domain", ""), "without empty parts"),
    ],
)
def test_levels_with_which_nothing_is_learned_are_refused(value: Any, why: str) -> None:
    with pytest.raises(SettingsError, match="setting levels: ") as caught:
        read_settings(levels=value)
    assert why in str(caught.value)


@pytest.mark.parametrize("value", ["", " ", ()])
def test_an_empty_value_means_no_levels(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = read_settings(levels=value)
    assert found.levels == ()
    monkeypatch.setenv("HEADSTART_LEVELS", environment(found)["HEADSTART_LEVELS"])
    assert read_settings().levels == ()


def test_a_child_process_gets_the_same_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = read_settings(
        data=tmp_path,
        kafka="a:1",
        postgres="postgresql://b/c",
        redis="redis://d:1/0",
        learner="ema",
        levels=("region",),
        operators_key="secret",
        idle_days=2.5,
        most_contexts=500,
        weights="success=0.5,cost=2",
        feedback_weight=3,
        weigh_floods=False,
        notices_days=9.5,
        retrievals_days=2.5,
        pack_after_days=30,
        partitions=3,
        refused_ratio=0.25,
        refused_window=50,
        refused_run=0,
        instance="b",
        stuck_after_s=12.5,
        health="[::1]:8080",
    )
    for name, value in environment(given).items():
        monkeypatch.setenv(name, value)
    assert read_settings() == given
    assert not {"HEADSTART_KAFKA", "HEADSTART_REDIS"} & environment(given, addresses=False).keys()
