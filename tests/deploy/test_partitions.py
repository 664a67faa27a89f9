"""What was learned with another number of partitions is neither adopted nor deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.adoption import OtherPartitions, _require_owned
from deploy.local import StackConfig, StackError
from deploy.partitions import learned_partitions, require_partitions
from deploy.system import System
from processing.placement import owner
from processing.rows import CONTEXT


@pytest.fixture
def learned(tmp_path: Path) -> Path:
    """A data directory whose worker has tables of four partitions."""
    for number in range(4):
        (tmp_path / f"workers/thresholds-0/v1/tables/contexts-{number}.db").mkdir(parents=True)
    return tmp_path


def test_the_count_is_seen_in_the_data_directory(learned: Path, tmp_path: Path) -> None:
    assert learned_partitions(learned) == 4
    assert learned_partitions(tmp_path / "another") is None


def test_another_count_is_refused_with_a_remedy_that_deletes_nothing(learned: Path) -> None:
    require_partitions(learned, 4)
    for count in (2, 8):
        with pytest.raises(StackError, match="--partitions 4") as caught:
            require_partitions(learned, count)
        assert "delete" not in str(caught.value)


def test_a_system_with_another_count_does_not_start(learned: Path) -> None:
    with pytest.raises(StackError, match="of 4 partitions"):
        System(StackConfig(data=learned), partitions=2).start()
    assert not (learned / "stack.json").exists()


def test_a_worker_adopts_no_key_of_another_partition() -> None:
    key = CONTEXT + b"default\x1fworkflow_type=refund"
    place = owner("default", "refund", 8)
    _require_owned(key, place, 8)
    with pytest.raises(OtherPartitions, match="workflow_type=refund"):
        _require_owned(key, (place + 1) % 8, 8)
