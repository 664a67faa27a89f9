"""Runs of an agent, by `query` and by `ClaudeSDKClient`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import claude_shop
import pytest
from claude_agent_sdk import AgentDefinition, ClaudeSDKClient, query
from claude_shop import (
    ALLOWED,
    LOOKUP,
    SEARCH,
    ask,
    ask_client,
    lookup,
    search,
    shop_options,
    slow_tool,
    speculated,
)
from faulty_runs import timeout_after
from played_claude import ApiError, PlayedClaude, Use
from scripted import SpooledEvents, wait_until

from headstart.integrations.claude_agent import sessions

Run = Callable[[PlayedClaude, Any], Awaitable[Any]]
GUESS = [(SEARCH, {"query": "order 7"})]
ONE_CALL = ([search("order 7", "c1")], "It is on its way.")


@pytest.fixture(autouse=True)
def _no_calls() -> Iterator[None]:
    claude_shop.RAN.clear()
    yield
    claude_shop.RAN.clear()


async def by_client(played: PlayedClaude, options: Any) -> Any:
    async with ClaudeSDKClient(options, transport=played) as client:
        return await ask_client(client)


@pytest.fixture(params=[ask, by_client], ids=["query", "client"])
def run(request: pytest.FixtureRequest) -> Run:
    return request.param


def play(*script: Any, **options: Any) -> PlayedClaude:
    return PlayedClaude(script, allowed=ALLOWED, **options)


async def finished(run: Awaitable[Any]) -> Any:
    """Return what a run returns; check that it leaves no task."""
    result = await run
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110 - of the SDK
            await asyncio.sleep(0.005)
    return result


def test_a_right_guess_answers(events: SpooledEvents, run: Run) -> None:
    played = play(*ONE_CALL)
    asyncio.run(finished(run(played, speculated(events, GUESS))))
    assert played.results == [("c1", "search found order 7", False)]
    assert claude_shop.RAN == [("search", "order 7")], "made once"
    assert events.kinds() == [f"start {SEARCH}", f"hit {SEARCH}", "end success"]
    assert events.read()[1]["data"]["result"]["gain_ms"] > 10
    end = events.read()[2]["data"]
    assert (end["query"], end["response"]) == ("Where is order 7?", "It is on its way.")


def test_a_wrong_guess_leaves_no_trace(events: SpooledEvents, run: Run) -> None:
    plain, ours = play(*ONE_CALL), play(*ONE_CALL)
    asyncio.run(finished(run(plain, shop_options())))
    claude_shop.RAN.clear()
    asyncio.run(finished(run(ours, speculated(events, [(SEARCH, {"query": "order 8"})]))))
    assert ours.results == plain.results
    assert claude_shop.RAN == [("search", "order 8"), ("search", "order 7")]
    assert events.kinds() == [f"start {SEARCH}", f"miss {SEARCH}", f"{SEARCH} ok", "end success"]
    assert events.read()[1]["data"]["result"]["cost_ms"] > 10


def test_parallel_calls_with_one_hit(events: SpooledEvents, run: Run) -> None:
    """The second call arrives while the first one runs."""
    played = play([search("a", "c1"), ("wait", 0.01), lookup("b", "c2")], "Done.")
    asyncio.run(finished(run(played, speculated(events, [(SEARCH, {"query": "a"})]))))
    assert sorted(played.results) == [
        ("c1", "search found a", False),
        ("c2", "lookup found b", False),
    ]
    assert sorted(claude_shop.RAN) == [("lookup", "b"), ("search", "a")]
    assert sorted(events.kinds()) == sorted(
        [f"start {SEARCH}", f"hit {SEARCH}", f"{LOOKUP} ok", "end success"]
    )
    assert sorted(events.calls()) == [(LOOKUP, {"query": "b"}), (SEARCH, {"query": "a"})]


def test_a_later_call_of_the_turn_is_answered(events: SpooledEvents) -> None:
    played = play([lookup("b", "c1"), search("a", "c2")], "Done.", serial=[LOOKUP, SEARCH])
    asyncio.run(finished(ask(played, speculated(events, [(SEARCH, {"query": "a"})]))))
    assert played.results == [("c1", "lookup found b", False), ("c2", "search found a", False)]
    assert claude_shop.RAN == [("search", "a"), ("lookup", "b")]


def test_two_equal_calls_are_answered_once(events: SpooledEvents) -> None:
    played = play([search("a", "c1"), search("a", "c2")], "Done.")
    asyncio.run(finished(ask(played, speculated(events, [(SEARCH, {"query": "a"})]))))
    assert claude_shop.RAN == [("search", "a")] * 2
    assert sorted(events.kinds()) == sorted(
        [f"start {SEARCH}", f"hit {SEARCH}", f"{SEARCH} ok", "end success"]
    )


def test_an_error_that_the_model_gets_is_no_hit(events: SpooledEvents, run: Run) -> None:
    options = shop_options(slow_tool("search", error=ValueError("no connection")))
    played = play(*ONE_CALL)
    asyncio.run(finished(run(played, speculated(events, GUESS, options=options))))
    assert played.results == [("c1", "no connection", True)]
    assert claude_shop.RAN == [("search", "order 7")] * 2
    assert events.kinds() == [
        f"start {SEARCH}", f"failed {SEARCH}", f"{SEARCH} error", "end success"
    ]  # fmt: skip


def test_a_model_that_fails_leaves_nothing_open(events: SpooledEvents, run: Run) -> None:
    options = speculated(events, GUESS, options=shop_options(slow_tool("search", 5.0)))
    asyncio.run(finished(run(play(ApiError("overloaded")), options)))
    assert events.kinds() == [f"start {SEARCH}", "end failure"]


def test_a_stream_that_breaks_leaves_nothing_open(events: SpooledEvents, run: Run) -> None:
    options = speculated(events, GUESS, options=shop_options(slow_tool("search", 5.0)))

    async def broken() -> None:
        with pytest.raises(ConnectionError, match="no more"):
            await run(play(ConnectionError("no more")), options)

    asyncio.run(finished(broken()))
    assert events.kinds() == [f"start {SEARCH}", "end aborted"]


def test_the_predictor_receives_everything(events: SpooledEvents) -> None:
    """A session goes on in another run, and by another connection when it is resumed."""
    received: list[Any] = []
    options = speculated(events, received=received)
    turn = [search("a", "c1"), Use("Bash", {"command": "ls"}, "c2")]

    async def conversation() -> None:
        allowed = [*ALLOWED, "Bash"]
        async with ClaudeSDKClient(
            options, PlayedClaude([turn, "Here."], ["You are welcome."], allowed=allowed)
        ) as client:
            await ask_client(client)
            await ask_client(client, "Thank you.")
        async with ClaudeSDKClient(options, PlayedClaude(["Yes."])) as client:
            await ask_client(client, "Still there?")

    asyncio.run(finished(conversation()))
    wait_until(lambda: len(received) == 12)  # it works in a thread of its own
    assert received == [
        ("user", "Where is order 7?"),
        [(SEARCH, {"query": "a"}), ("Bash", {"command": "ls"})],
        (SEARCH, "search found a", False),
        ("Bash", {"stdout": "ran {'command': 'ls'}"}, False),
        [],
        ("said", "Here."),
        ("user", "Thank you."),
        [],
        ("said", "You are welcome."),
        ("user", "Still there?"),
        [],
        ("said", "Yes."),
    ]
    ends = [each for each in events.read() if each["event_type"] == "workflow_complete"]
    assert len({each["workflow_id"] for each in ends}) == 3
    assert len({each["session_id"] for each in ends}) == 1


def test_an_interrupt_leaves_nothing_open(events: SpooledEvents) -> None:
    """It cancels a call that waits for a guess; the session goes on."""
    options = speculated(events, GUESS, options=shop_options(slow_tool("search", 0.4)))
    played = PlayedClaude(ONE_CALL, ["Sorry."], allowed=ALLOWED)

    async def interrupted() -> None:
        async with ClaudeSDKClient(options, played) as client:
            await client.query("Where is order 7?")
            await asyncio.sleep(0.2)
            await client.interrupt()
            messages = [each async for each in client.receive_response()]
            assert messages[-1].is_error
            await ask_client(client, "Stop.")

    asyncio.run(finished(interrupted()))
    assert claude_shop.RAN == [("search", "order 7")]
    assert events.kinds() == [
        f"start {SEARCH}", f"failed {SEARCH}", f"{SEARCH} error", "end aborted", "end success"
    ]  # fmt: skip


def test_an_interrupted_run_ends_by_itself(
    events: SpooledEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "LEFT_S", 0.05)
    options = speculated(events, GUESS, options=shop_options(slow_tool("search", 0.4)))

    async def interrupted() -> None:
        async with ClaudeSDKClient(options, play(*ONE_CALL)) as client:
            await client.query("Where is order 7?")
            await asyncio.sleep(0.2)
            await client.interrupt()
            async with asyncio.timeout(10):
                while "end aborted" not in events.kinds():  # noqa: ASYNC110 - a file
                    await asyncio.sleep(0.02)

    asyncio.run(finished(interrupted()))


@pytest.mark.parametrize("after_s", [0.05, 0.2])
def test_a_cancelled_run_leaves_nothing_open(events: SpooledEvents, after_s: float) -> None:
    received: list[Any] = []
    options = shop_options(slow_tool("search", 0.4))
    options = speculated(events, GUESS, options=options, received=received)

    async def cancelled() -> None:
        with pytest.raises(TimeoutError):
            async with timeout_after(lambda: received, after_s):
                await ask(play(*ONE_CALL, thinks_s=0.1), options)

    asyncio.run(finished(cancelled()))
    assert events.kinds()[-1] == "end aborted"


def test_messages_of_the_user_while_the_agent_works(events: SpooledEvents) -> None:
    received: list[Any] = []
    options = speculated(events, GUESS, received=received)
    played = play(*ONE_CALL)

    async def conversation() -> None:
        async with ClaudeSDKClient(options, played) as client:
            await client.query("Where is order 7?")
            await asyncio.sleep(0.02)
            await played.hook("UserPromptSubmit", {"prompt_id": "p0", "prompt": "Please."})
            messages = [each async for each in client.receive_response()]
            assert not messages[-1].is_error

    asyncio.run(finished(conversation()))
    assert ("user", "Please.") in received
    assert events.kinds()[-1] == "end success"
    assert len({each["workflow_id"] for each in events.read()}) == 1


def test_streamed_prompts(events: SpooledEvents) -> None:
    async def prompts() -> Any:
        for text in ("Where is order 7?", "Thank you."):
            message = {"role": "user", "content": text}
            yield {"type": "user", "message": message, "parent_tool_use_id": None}

    played = PlayedClaude(ONE_CALL, ["You are welcome."], allowed=ALLOWED)

    async def run() -> None:
        async for _ in query(prompt=prompts(), options=speculated(events, GUESS), transport=played):
            pass

    asyncio.run(finished(run()))
    assert events.kinds() == [f"start {SEARCH}", f"hit {SEARCH}", "end success", "end success"]


def test_subagents_have_runs_of_their_own(events: SpooledEvents) -> None:
    """Two at once, of one type: each begins with its own question."""
    answers = ([search("a", "s1")], "Found."), ([search("a", "s2")], "Found.")
    asked = [
        Use("Agent", {"subagent_type": "finder", "prompt": f"Find {n}."}, f"c{n}", answers[n])
        for n in range(2)
    ]
    received: list[Any] = []
    guess = [(SEARCH, {"query": "a"})]
    agents = {"finder": AgentDefinition("finds", "Find.", tools=[SEARCH])}
    options = speculated(events, guess, options=shop_options(agents=agents), received=received)
    played = PlayedClaude([asked, "Done."], allowed=[*ALLOWED, "Agent"])
    asyncio.run(finished(ask(played, options)))
    by_run: dict[str, list[Any]] = {}
    for each in events.read():
        by_run.setdefault(each["workflow_id"], []).append(each)
    kinds = sorted(
        (own[-1].get("agent_id", ""), own[-1]["data"]["query"]) for own in by_run.values()
    )
    assert kinds == [("", "Where is order 7?"), ("finder", "Find 0."), ("finder", "Find 1.")]
    assert events.kinds().count(f"hit {SEARCH}") == 2
    assert sorted(claude_shop.RAN) == [("search", "a")] * 3, "one was of the main agent's guess"
