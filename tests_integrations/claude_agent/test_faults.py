"""Runs with injected faults, and that speculating never takes longer."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from itertools import count
from typing import Any

import anyio
import timed_pairs
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, tool
from claude_shop import (
    ALLOWED,
    LOOKUP,
    READ_ONLY,
    SEARCH,
    ask,
    lookup,
    search,
    shop_options,
    slow_tool,
)
from faulty_runs import STARTED_AT_LEAST
from played_claude import ApiError, PlayedClaude
from scripted import Script, SpooledEvents, set_up

from headstart.integrations.claude_agent import speculating

RUNS, AT_ONCE = 1000, 10
GUESSES = [[(SEARCH, {"query": "a"}), (LOOKUP, {"query": "wrong"})]] * 2


class Faults:
    """Draws, for each call, whether it works, raises, or hangs until it is cancelled."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    async def __call__(self, name: str) -> Any:
        drawn = self.random.random()
        await asyncio.sleep(drawn * 0.004)
        if drawn < 0.15:
            raise ValueError(f"{name} has failed")
        if drawn > 0.93:
            await asyncio.sleep(60)
        return {"content": [{"type": "text", "text": f"{name} {self.random.random()}"}]}

    def options(self) -> ClaudeAgentOptions:
        """Return an agent with tools that fail."""

        @tool("search", "Search.", {"query": str}, annotations=READ_ONLY)
        async def search(args: Any) -> Any:
            return await self("search")

        @tool("lookup", "Look up.", {"query": str}, annotations=READ_ONLY)
        async def lookup(args: Any) -> Any:
            return await self("lookup")

        return shop_options(search, lookup)

    def script(self, number: int, *, breaks: bool) -> list[Any]:
        """Return two turns and a reply, or less: the model fails, or its stream breaks.

        An interrupt of a broken stream would wait for a minute, with or without speculation.
        """
        ids = [f"c{number}-{place}" for place in range(3)]
        script: list[Any] = [
            [search("a", ids[0]), ("wait", 0.001), lookup("b", ids[1])],
            [search("a", ids[2])],
            "Done.",
        ]
        broken = ConnectionError("broken") if breaks else None
        failed = self.random.choice([None, None, None, ApiError("no"), broken])
        if failed is not None:
            script[self.random.randrange(3)] = failed
        return script


async def by_client(played: PlayedClaude, options: Any, interrupted: bool) -> str:
    async with ClaudeSDKClient(options, played) as client:
        await client.query("Where?")
        if interrupted:
            while not played.works:  # noqa: ASYNC110 - of a scripted program
                await asyncio.sleep(0.001)
            await asyncio.sleep(random.random() * 0.01)
            await client.interrupt()
        messages = [each async for each in client.receive_response()]
    return "interrupted" if messages[-1].is_error else "done"


def test_faulty_runs(events: SpooledEvents) -> None:
    faults = Faults(7)
    setup = set_up(events, Script(*GUESSES))
    options = speculating(faults.options(), setup=setup)
    outcomes: Counter[str] = Counter()

    async def one(number: int) -> None:
        interrupted = number % 10 == 1
        script = faults.script(number, breaks=not interrupted)
        played = PlayedClaude(
            script, allowed=ALLOWED, thinks_s=0.002, session=f"s{number}",
            call_timeout_s=0.03,
        )  # fmt: skip
        within_s = faults.random.random() * 0.1 if number % 5 == 0 else None
        try:
            with anyio.fail_after(within_s):  # asyncio.timeout would break the SDK's own closing
                if number % 2:
                    outcome = await by_client(played, options, interrupted)
                else:
                    await ask(played, options)
                    outcome = "done"
        except (ConnectionError, TimeoutError) as error:
            outcome = type(error).__name__
        texts = [text for _, text, error in played.results if not error]
        assert len(texts) == len(set(texts)), "each result is used once"
        outcomes[outcome] += 1

    async def run() -> None:
        for batch in range(RUNS // AT_ONCE):
            await asyncio.gather(*(one(batch * AT_ONCE + number) for number in range(AT_ONCE)))
        async with asyncio.timeout(10):
            while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110 - calls that were cancelled
                await asyncio.sleep(0.01)
        stats = setup.speculator.stats()
        assert stats["open"] == 0, stats
        assert stats["started"] >= STARTED_AT_LEAST, stats

    asyncio.run(run())
    assert sum(outcomes.values()) == RUNS
    assert len(outcomes) == 4, outcomes
    logged = events.read()
    begun = [each["task_id"] for each in logged if each["event_type"] == "speculation_start"]
    ended = [each["task_id"] for each in logged if "was_correct" in prediction(each)]
    assert len(ended) == len(set(ended)) <= len(begun), "no guess has two outcomes"
    ends = [each["workflow_id"] for each in logged if each["event_type"] == "workflow_complete"]
    assert len(ends) == len(set(ends)) == len({each["workflow_id"] for each in logged})
    print(f"\n{dict(outcomes)}, {len(ends)} runs logged, {len(begun)} guesses")


def prediction(event: Any) -> Any:
    return event.get("data", {}).get("prediction", {})


@timed_pairs.cases
def test_two_parallel_calls_with_one_guess_take_no_longer(
    events: SpooledEvents, guess: str, search_s: float
) -> None:
    plain = shop_options(
        slow_tool("search", search_s), slow_tool("lookup", timed_pairs.LOOKUP_S)
    )  # fmt: skip
    setup = set_up(events, Script([(SEARCH, {"query": guess})]))
    ours = speculating(plain, setup=setup)
    parallel, sessions = [search("a", "c1"), lookup("b", "c2")], count()

    async def run(options: ClaudeAgentOptions) -> None:
        session = str(next(sessions))  # each begins the script of guesses
        played = PlayedClaude([parallel, "Done."], allowed=ALLOWED, session=session)
        await ask(played, options)

    asyncio.run(
        timed_pairs.check_pairs_in_loop(lambda: run(ours), lambda: run(plain), guess, search_s)
    )
