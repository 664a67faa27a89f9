"""A broker's quota delays the client id that it is for, and no other on the host."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local import Addresses, Stack, StackConfig
from deploy.local.kafka_jars import kafka_jars
from deploy.local.process_group import ProcessGroup
from headstart import Emitter, NotDelivered
from tests.patience import PATIENCE_S
from topics.epoch import ensure_topics

pytestmark = [
    pytest.mark.integration,
    pytest.mark.apache,
    pytest.mark.skipif(
        not (shutil.which("java") and shutil.which("mvn")), reason="needs java and mvn"
    ),
]

EVENT = {"event_type": "task_complete", "workflow_type": "refund", "workflow_id": "w"}
BYTES, EVENTS_FLOODED, BYTES_PER_S = 1_000, 4_000, 200_000


@pytest.fixture
def kafka(tmp_path: Path, addresses: Addresses) -> Iterator[str]:
    config = StackConfig(
        data=tmp_path / "stack",
        kafka="apache",
        postgres=addresses.postgres,
        redis=addresses.redis,
    )
    with Stack(config) as stack:
        asyncio.run(ensure_topics(stack.addresses.kafka, partitions=4))
        yield stack.addresses.kafka


def quota(kafka: str, home: Path, client_id: str, change: str, value: str) -> None:
    """Change a quota as an operator does, with Kafka's own command."""
    jars = kafka_jars(ProcessGroup(home), "jars")
    command = [
        "java", "-cp", f"{jars}/*", "kafka.admin.ConfigCommand", "--bootstrap-server", kafka,
        "--alter", change, value, "--entity-type", "clients", "--entity-name", client_id,
    ]  # fmt: skip
    subprocess.run(command, check=True, timeout=PATIENCE_S, capture_output=True)


def test_a_quota_holds_up_its_client_id_alone(kafka: str, tmp_path: Path) -> None:
    quota(kafka, tmp_path, "flooding", "--add-config", f"producer_byte_rate={BYTES_PER_S}")
    spool = tmp_path / "spool"
    flooding = Emitter(kafka, spool=spool, shipper="process", client_id="flooding")
    other = Emitter(kafka, spool=spool, shipper="process")
    for _ in range(EVENTS_FLOODED):
        flooding.emit(EVENT, tenant="flooding", data={"context": {"note": "x" * BYTES}})
    with pytest.raises(NotDelivered):
        flooding.flush(2.0)
    for _ in range(100):
        other.emit(EVENT, tenant="other")
    other.close(PATIENCE_S)
    assert flooding.stats()["waiting"] > 0
    quota(kafka, tmp_path, "flooding", "--delete-config", "producer_byte_rate")
    flooding.close(PATIENCE_S)
    assert flooding.stats()["acknowledged"] == EVENTS_FLOODED
