"""A worker that ends is started again, and the message names the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.supervisor import Supervisor
from tests.patience import until


@pytest.mark.integration
def test_the_message_of_an_ended_worker_has_its_error(tmp_path: Path) -> None:
    environment = {"HEADSTART_LEARNER": "password=hushhush"}
    supervisor = Supervisor(tmp_path, environment, names=("episodes",))
    supervisor.start()
    try:
        messages = list[str]()
        until(lambda: messages.extend(supervisor.check()) or messages)
    finally:
        supervisor.stop()
    (line,) = messages
    assert line.startswith(
        "worker episodes ended with exit code 1: setting learner: there is no policy 'password=***"
    )
    assert "; starting it again in 0.5 s (log: " in line
    assert "hushhush" not in line
    assert "\n" not in line
