"""The catalogue: names, keys and settings are what other languages and tools rely on."""

from __future__ import annotations

import re

import pytest

from topics import catalogue
from topics.catalogue import (
    CHANGELOG,
    CONTEXTS_TABLE,
    DEAD_LETTERS,
    HANDLED,
    THRESHOLDS_GROUP,
    TOPICS,
    Topic,
    group_of,
    worker_of,
)

PUBLIC = [topic for topic in TOPICS if not topic.internal]


def test_the_names() -> None:
    assert [topic.name for topic in TOPICS] == [
        "headstart.events",
        "headstart.thresholds",
        "headstart.decisions",
        "headstart.models",
        "headstart.dead-letters",
        "headstart.dead-letters-handled",
        "headstart.commands",
        "headstart.notices",
        "headstart.epochs",
        "headstart-thresholds-contexts-changelog",
    ]


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_every_topic_is_described(topic: Topic) -> None:
    assert re.fullmatch(r"[a-z0-9.-]{1,249}", topic.name)
    assert topic.holds
    assert topic.key


@pytest.mark.parametrize("topic", PUBLIC, ids=lambda topic: topic.name)
def test_public_names_are_lower_case_with_dots(topic: Topic) -> None:
    assert re.fullmatch(r"headstart\.[a-z]+(-[a-z]+)*", topic.name)


def test_the_changelog_has_the_name_that_faust_gives_it() -> None:
    # faust.tables.base.Collection._changelog_topic_name: "{app.conf.id}-{table.name}-changelog"
    assert f"{THRESHOLDS_GROUP}-{CONTEXTS_TABLE}-changelog" == CHANGELOG.name
    assert CHANGELOG.cleanup == "compact"
    assert CHANGELOG.partitioned


def test_groups_are_different() -> None:
    groups = [catalogue.THRESHOLDS_GROUP, catalogue.EPISODES_GROUP, catalogue.HISTORY_GROUP]
    groups.append(catalogue.PREDICTIONS_GROUP)
    assert len(set(groups)) == 4


def test_a_group_is_named_by_its_worker() -> None:
    assert group_of("thresholds") == "headstart-thresholds"
    assert worker_of(group_of("thresholds")) == "thresholds"
    assert worker_of("another") == "another"
    assert worker_of("of-headstart-episodes") == "of-headstart-episodes"


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_the_settings_that_the_broker_gets(topic: Topic) -> None:
    settings = topic.configuration()
    assert settings["cleanup.policy"] == topic.cleanup
    assert int(settings["max.message.bytes"]) >= 1_048_576
    if topic.cleanup == "delete":
        assert int(settings["retention.ms"]) >= 86_400_000
    else:
        assert "retention.ms" not in settings
    assert all(isinstance(value, str) for value in settings.values())


def test_a_note_outlives_its_dead_letter() -> None:
    # By far: a segment is deleted as a whole, and may be rolled only a week after its first record.
    assert HANDLED.retention_ms >= 2 * DEAD_LETTERS.retention_ms


def test_topics_without_retention_are_compacted() -> None:
    kept = {topic.name for topic in TOPICS if topic.cleanup == "compact"}
    assert kept == {
        "headstart.thresholds",
        "headstart.models",
        "headstart.commands",
        "headstart.epochs",
        CHANGELOG.name,
    }
