"""Fixtures of the tests of all integrations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted import SpooledEvents


@pytest.fixture
def events(tmp_path: Path) -> Iterator[SpooledEvents]:
    spooled = SpooledEvents(tmp_path / "spool")
    yield spooled
    spooled.emitter._close_buffer(1.0)  # `close` would wait for a broker
