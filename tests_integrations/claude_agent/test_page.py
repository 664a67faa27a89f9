"""The documentation's page: its lines make an agent that speculates."""

from __future__ import annotations

import ast
import asyncio
import re
from functools import partial
from pathlib import Path
from types import CoroutineType
from typing import Any

import claude_agent_sdk
import pytest
from played_claude import PlayedClaude, Use
from scripted import Script, SpooledEvents, set_up

from headstart.integrations import claude_agent as integration

PAGE = Path(__file__).parents[2] / "docs/how-to/integrate-claude-agent.md"
GREET = "mcp__tools__greet"


def test_the_lines_of_the_page(events: SpooledEvents, monkeypatch: pytest.MonkeyPatch) -> None:
    found = re.search(r"```diff\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    lines = [line[1:] for line in found[1].splitlines() if not line.startswith("-")]
    assert sum(line.startswith("+") for line in found[1].splitlines()) <= 3
    own = integration.speculating

    def with_parts(options: Any, workflow_type: str, read_only: list[str]) -> Any:
        guesses = Script([(GREET, {"name": "Alice"})])
        return own(options, setup=set_up(events, guesses, read_only=read_only))

    script = [[Use(GREET, {"name": "Alice"}, "c1")], "Done."]
    played = PlayedClaude(script, allowed=[GREET], servers=["tools"])
    client = partial(claude_agent_sdk.ClaudeSDKClient, transport=played)
    monkeypatch.setattr(integration, "speculating", with_parts)
    monkeypatch.setattr(claude_agent_sdk, "ClaudeSDKClient", client)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    running = eval(compile("\n".join(lines), str(PAGE), "exec", flags), {})
    assert isinstance(running, CoroutineType)
    asyncio.run(running)
    assert played.results == [("c1", "Hello, Alice!", False)]
    assert events.kinds() == [f"start {GREET}", f"hit {GREET}", "end success"]
