"""What the agents' tests share: settings of a worker that never connects."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.config import WorkerConfig
from learners.registry import policy
from processing.config import LearningConfig


@pytest.fixture
def worker_config(tmp_path: Path) -> WorkerConfig:
    return WorkerConfig(
        kafka="127.0.0.1:1",
        postgres="postgresql://127.0.0.1:1/headstart",
        redis="redis://127.0.0.1:1/0",
        data=tmp_path / "worker",
        rules=LearningConfig(policy("td")),
        instance="0",
        spans_topic="otlp_spans",
    )
