"""What the options, and the files and listings beside them, lead to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from headstart.integrations import setup as set_up
from headstart.integrations.mcp_proxy import command, over_stdio
from headstart.integrations.mcp_proxy.known_tools import KnownTools
from headstart.integrations.mcp_proxy.options import Upstream, parsed, setup_of
from headstart.integrations.mcp_proxy.predictor_file import save
from headstart.prediction.predictor import CallPredictor


class _Shared:
    """Shared learning that notes which predictors it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def predictor(self, workflow_type: str, tenant: str) -> CallPredictor:
        self.asked.append((workflow_type, tenant))
        return CallPredictor()


@pytest.mark.parametrize("with_state", [False, True])
def test_learning_is_shared_unless_a_file_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_state: bool
) -> None:
    async def serve(*_: Any) -> int:
        return 0

    shared = _Shared()
    monkeypatch.setenv("HEADSTART_SHARED_LEARNING", "1")
    monkeypatch.setenv("HEADSTART_SPOOL", str(tmp_path / "spool"))
    monkeypatch.setenv("HEADSTART_SHIPPER", "none")
    monkeypatch.setattr(set_up, "process_shared_learning", lambda: shared)
    monkeypatch.setattr(command, "configure_logging", lambda: None)
    monkeypatch.setattr(command, "serve", serve)
    state = ["--state", str(tmp_path / "state")] if with_state else []
    with pytest.raises(SystemExit) as ended:
        command.main(["--workflow-type", "w", *state, "--", "server"])
    assert ended.value.code == 0
    assert shared.asked == ([] if with_state else [("w", "default")])


@pytest.mark.parametrize("more", [[], ["--no-arguments"]])
def test_arguments_are_logged_unless_an_option_forbids_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    monkeypatch.setenv("HEADSTART_SPOOL", str(tmp_path / "spool"))
    monkeypatch.setenv("HEADSTART_SHIPPER", "none")
    setup = setup_of(parsed(["--workflow-type", "w", *more, "--", "server"]), CallPredictor())
    assert setup.speculator.logs_arguments is (not more)


def test_a_forbidden_tool_stays_forbidden_when_the_tools_are_listed_again() -> None:
    tools = KnownTools()
    tools.forbid("search")
    tools.listed(None, {"tools": [{"name": "search"}, {"name": "lookup"}]})
    assert tools.hints["search"] == {"requires_user_input": True}
    assert tools.hints["lookup"] != {"requires_user_input": True}


def test_a_failed_save_leaves_no_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "state").mkdir()  # no file can replace a folder
    save(CallPredictor(), tmp_path / "state")
    assert "cannot be saved" in caplog.text
    assert [each.name for each in tmp_path.iterdir()] == ["state"]


def test_a_failure_after_the_start_of_the_server_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @asynccontextmanager
    async def streams(*_: Any) -> AsyncIterator[Any]:
        to_end, from_end = anyio.create_memory_object_stream[Any](1)
        async with from_end, to_end:
            yield from_end, to_end

    class Broken:
        async def run(self, *_: Any) -> bool:
            raise ValueError("some defect")

    class SetUp:
        async def close(self) -> None:
            pass

    left: list[int] = []
    monkeypatch.setattr(over_stdio, "stdio_server", streams)
    monkeypatch.setattr(over_stdio, "stdio_client", streams)
    monkeypatch.setattr(over_stdio, "_leave", left.append)
    serving: Any = over_stdio.serve
    with caplog.at_level(logging.ERROR):
        asyncio.run(serving(Broken(), Upstream(["server"], None, {}), SetUp(), lambda: None))
    assert left == [1]
    assert "the proxy has failed" in caplog.text
    assert "some defect" in caplog.text
    assert "cannot be started" not in caplog.text
