"""What is registered is what is expected, on the versions that the record path was written for."""

from __future__ import annotations

import importlib
from importlib.metadata import version
from typing import Any

import pytest

from agents.app import App, Tables
from agents.config import WorkerConfig
from agents.consumer.faust_transport import Consumer, RecordBatchSchema, Transport
from agents.thresholds.store import ContextTable
from agents.worker import APPS
from cli.system.worker import Name
from processing.worker_report import ALL_WORKERS, MEMORY
from topics.catalogue import CHANGELOG, CONTEXTS_TABLE
from topics.epoch import Epoch

EXPECTED = {
    "episodes": ("headstart-episodes", "headstart.events"),
    "thresholds": ("headstart-thresholds", "headstart.events"),
    "history": ("headstart-history", "headstart.thresholds"),
    "predictions": ("headstart-predictions", "headstart.decisions"),
    "spans": ("headstart-spans", "otlp_spans"),
}


@pytest.fixture(params=sorted(EXPECTED))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def app(name: str, worker_config: WorkerConfig) -> App:
    return APPS[name]()(worker_config, Epoch(1_800_000_000, 4))


def test_the_workers() -> None:
    # The worker of the memory reads Postgres only, and is no Faust app.
    assert {*APPS, MEMORY} == {*ALL_WORKERS} == {*EXPECTED, MEMORY} == {*Name} - {Name.ALL}


def test_each_has_one_agent_on_one_topic_in_a_group_of_its_own(app: App, name: str) -> None:
    group, topic = EXPECTED[name]
    assert app.conf.id == group
    assert app.source_topics == {topic}
    (agent,) = app.agents.values()
    assert list(agent.channel.topics) == [topic]
    assert isinstance(agent.channel.schema, RecordBatchSchema)
    assert agent.concurrency == 1


def test_only_the_threshold_agent_has_a_table(app: App, name: str) -> None:
    assert type(app.tables) is Tables  # Faust's own waits a second for more of them
    if name != "thresholds":
        assert not app.tables
        return
    (table,) = app.tables.values()
    assert type(table) is ContextTable
    assert table.name == CONTEXTS_TABLE
    assert list(table.changelog_topic.topics) == [CHANGELOG.name]
    assert table.partitions == 4
    assert table.data.epoch == 1_800_000_000


def test_they_are_on_the_record_path(app: App) -> None:
    assert type(app.transport) is Transport
    assert app.transport.Consumer is Consumer


def test_settings_that_exactness_rests_on(app: App, name: str, worker_config: WorkerConfig) -> None:
    settings: Any = app.conf
    assert settings.topic_allow_declare is False
    assert settings.stream_wait_empty is False
    assert settings.producer_acks == -1
    assert settings.autodiscover is False
    assert settings.web_enabled is False
    assert settings.consumer_group_instance_id == f"headstart-{name}-0"
    assert settings.datadir == worker_config.data
    assert settings.consumer_auto_offset_reset == "earliest"


@pytest.mark.parametrize(
    "extension",
    ["faust._cython.streams", "faust._cython.windows", "faust.transport._cython.conductor"],
)
def test_fausts_extensions_are_loaded(extension: str) -> None:
    module = importlib.import_module(extension)
    assert module.__file__ is not None
    assert module.__file__.endswith((".so", ".pyd"))


def test_they_are_what_faust_uses() -> None:
    streams: Any = importlib.import_module("faust.streams")
    conductor: Any = importlib.import_module("faust.transport.conductor")
    assert streams._CStreamIterator is not None
    assert conductor.ConductorHandler is not None


def test_aiokafkas_extensions_are_loaded() -> None:
    records: Any = importlib.import_module("aiokafka.record.default_records")
    assert records.DefaultRecordBatch is not records._DefaultRecordBatchPy


def test_pinned_versions() -> None:
    # The record path overrides private methods; look at each before you change these.
    assert version("aiokafka") == "0.14.0"
    assert version("faust-streaming") == "0.15.3"
