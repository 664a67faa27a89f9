"""The set-up that integrations of agent frameworks share."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import headstart
from headstart.arguments.checks import InvalidArgument
from headstart.integrations.setup import SpeculationSetup
from tests.client.recording_emitter import Taken


def test_a_run_has_the_context_of_the_set_up(tmp_path: Path) -> None:
    emitter = Taken(tmp_path)
    setup = SpeculationSetup(
        "refund", read_only=["search"], tenant="acme", user_id="u7", context={"domain": "retail"},
        emitter=emitter,
    )  # fmt: skip

    async def test() -> None:
        setup.run({"search": {}}, {"user_id": "u8", "session_id": None}).finished()
        await setup.close()

    asyncio.run(test())
    setup.thread_run().finished()
    setup.thread_speculator.close()
    assert [event["event_type"] for event in emitter.events] == ["workflow_complete"] * 2
    assert [event["user_id"] for event in emitter.events] == ["u8", "u7"]
    assert {event["tenant"] for event in emitter.events} == {"acme"}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"workflow_type": ""}, "workflow_type"),
        ({"tenant": 7}, "tenant"),
        ({"read_only": "search"}, "read_only"),
        ({"dangerus": {"pay"}}, "dangerous"),
        ({"limit": -1}, "limit"),
        ({"guess_s": 0}, "guess_s"),
        ({"predictor": 3}, "predictor"),
    ],
)
def test_a_wrong_argument_is_named(tmp_path: Path, arguments: dict[str, Any], named: str) -> None:
    given = {"workflow_type": "refund", "emitter": Taken(tmp_path), **arguments}
    with pytest.raises(InvalidArgument, match=named):
        SpeculationSetup.of(None, given)


def test_a_speculator_has_settings_of_its_own(tmp_path: Path) -> None:
    reader = headstart.AsyncThresholds("redis://127.0.0.1:1/0")
    speculator = headstart.AsyncSpeculator(reader, Taken(tmp_path))
    with pytest.raises(InvalidArgument, match="give them to it"):
        SpeculationSetup("refund", speculator=speculator, read_only=["search"])
    setup = SpeculationSetup("refund", speculator=speculator)
    assert setup.speculator is speculator
    with pytest.raises(InvalidArgument, match="thread_speculator is missing"):
        setup.thread_run()
    with pytest.raises(InvalidArgument, match="setup has these of its own: limit"):
        SpeculationSetup.of(setup, {"limit": 2})
    with pytest.raises(InvalidArgument, match="workflow_type is missing"):
        SpeculationSetup.of(None, {})
