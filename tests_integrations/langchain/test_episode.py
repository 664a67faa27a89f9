"""The episode that the service makes of an agent's run: its query, and its calls with arguments."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

from fake_agent import ScriptedModel, asked, call, slow_tool
from langchain.agents import create_agent
from scripted import Script, SpooledEvents, set_up

from headstart.integrations.langchain import SpeculationMiddleware

REPOSITORY = Path(__file__).parents[2]
ASSEMBLE = """
import json, sys
from memory.episodes.assembly import assemble
from memory.episodes.run_event import run_event

events = [run_event(each) for each in json.load(sys.stdin)]
episode = assemble("default", "refund", "w1", events)
json.dump({"query": episode.query, "response": episode.response, "outcome": episode.outcome,
           "calls": [[each.tool, json.loads(each.arguments)] for each in episode.calls]},
          sys.stdout)
"""


def assembled(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the service's environment makes of events: it is not installed in this one."""
    done = subprocess.run(
        [REPOSITORY / ".venv/bin/python", "-c", ASSEMBLE], cwd=REPOSITORY, check=True, text=True,
        input=json.dumps(events), stdout=subprocess.PIPE,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_an_episode_has_the_query_and_the_calls_with_their_arguments(events: SpooledEvents) -> None:
    script = [
        [call("search", "order 7", "c1")],
        [call("lookup", "carrier", "c2"), call("search", "refunds", "c3")],
        "It is on its way.",
    ]
    guesses = [("search", {"query": "order 7"})], [("search", {"query": "order 8"})]
    setup = set_up(events, Script(*guesses), read_only=["search", "lookup"])
    agent = create_agent(
        ScriptedModel(script=script), [slow_tool("search"), slow_tool("lookup")],
        middleware=[SpeculationMiddleware(setup=setup)],
    )  # fmt: skip
    asyncio.run(agent.ainvoke(asked()))
    kinds = events.kinds()
    assert "hit search" in kinds
    assert "miss search" in kinds
    episode = assembled(events.read())
    assert (episode["query"], episode["outcome"]) == ("Where is order 7?", "success")
    assert episode["response"] == "It is on its way."
    assert episode["calls"][0] == ["search", {"query": "order 7"}]
    assert sorted(episode["calls"][1:], key=str) == [
        ["lookup", {"query": "carrier"}], ["search", {"query": "refunds"}]
    ]  # fmt: skip
