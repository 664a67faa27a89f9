"""The documentation's page: its lines make an agent that speculates."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from fake_pydantic_agent import scripted_model
from pydantic_ai import Agent
from pydantic_ai.messages import ToolCallPart
from scripted import Script, SpooledEvents, set_up

from headstart.arguments.checks import InvalidArgument
from headstart.integrations import pydantic_ai as integration

PAGE = Path(__file__).parents[2] / "docs/how-to/integrate-pydantic-ai.md"


async def get_weather(city: str) -> str:
    return f"It is sunny in {city}."


def test_the_lines_of_the_page(events: SpooledEvents, monkeypatch: pytest.MonkeyPatch) -> None:
    found = re.search(r"```diff\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    lines = [line[1:] for line in found[1].splitlines() if not line.startswith("-")]
    assert sum(line.startswith("+") for line in found[1].splitlines()) <= 3
    made: dict[str, Any] = {}

    def with_parts(workflow_type: str, read_only: list[str]) -> Any:
        guesses = Script([("get_weather", {"city": "Rome"})])
        return made["kind"](setup=set_up(events, guesses, read_only=read_only))

    made["kind"] = integration.SpeculationCapability
    monkeypatch.setattr(integration, "SpeculationCapability", with_parts)
    call = ToolCallPart("get_weather", {"city": "Rome"}, tool_call_id="c1")
    names: dict[str, Any] = {"Agent": Agent, "get_weather": get_weather}
    code = "\n".join(lines).replace('"anthropic:claude-sonnet-4-5"', "model")
    exec(code, names | {"model": scripted_model([[call], "Sunny."])}, names)
    asyncio.run(names["agent"].run("What is the weather in Rome?"))
    assert events.kinds() == ["start get_weather", "hit get_weather", "end success"]


def test_a_missing_workflow_type_is_named() -> None:
    with pytest.raises(InvalidArgument, match="workflow_type is missing"):
        integration.SpeculationCapability(read_only=["search"])
