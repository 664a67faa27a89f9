"""Synthetic runs as cases: requests that state an intent, and runs that nothing explains."""

from __future__ import annotations

from random import Random
from typing import Literal

from headstart.prediction.interface import ToolCall
from memory.cases.case import Case

VERBS = {
    "cancel": ("cancel", "call off", "drop"),
    "change": ("change", "modify", "alter"),
    "return": ("return", "send back"),
    "upgrade": ("upgrade", "improve"),
    "track": ("track", "follow"),
    "refund": ("refund", "pay back"),
}
NOUNS = ("flight", "order", "hotel", "subscription", "ticket")
POLITE = ("please", "hi there", "could you", "i would like to", "can you help me to", "urgent")
TOOLS = tuple(f"tool_{number}" for number in range(20))
Tasks = Literal["own", "intent", "one", "none"]


def course(chance: Random, most: int = 6) -> tuple[str, ...]:
    return tuple(chance.choice(TOOLS) for _ in range(chance.randint(2, most)))


def case(
    number: int,
    query: str,
    tools: tuple[str, ...],
    *,
    first: ToolCall | None = None,
    task: str = "",
    writer: str = "",
    reward: float | None = None,
) -> Case:
    calls = (first or ToolCall("get_user", {}), *(ToolCall(tool, {}) for tool in tools))
    key = f"run-{number}"
    return Case(key, writer or task or key, task, "default", query, calls, reward, None)


def intents(
    count: int, *, seed: int = 0, failing: float = 0.3, tasks: Tasks = "own", drift: bool = False
) -> list[Case]:
    """Return runs of 30 intents in paraphrases; some fail and take another course."""
    chance = Random(seed)
    kinds = [(verb, noun) for verb in VERBS for noun in NOUNS]
    courses = [course(chance) for _ in kinds]
    found = []
    for number in range(count):
        if drift and number == count // 2:
            courses = [course(chance) if place % 2 else old for place, old in enumerate(courses)]
        intent = chance.randrange(len(kinds))
        verb, noun = kinds[intent]
        query = f"{chance.choice(POLITE)} {chance.choice(VERBS[verb])} my {noun} "
        query += str(chance.randint(1000, 9999))
        fails = chance.random() < failing
        tools = course(chance) if fails else courses[intent]
        task = {"own": f"t{number}", "intent": f"i{intent}", "one": "t", "none": ""}[tasks]
        found.append(case(number, query, tools, task=task, reward=float(not fails)))
    return found


def unexplained(count: int, *, seed: int = 0, tools: int = 20, queries: bool = True) -> list[Case]:
    """Return runs whose requests, first calls and rewards say nothing about their course."""
    chance = Random(seed)
    words = ["".join(chance.choice("abcdefghij") for _ in range(5)) for _ in range(300)]
    found = []
    for number in range(count):
        rest = tuple(TOOLS[chance.randrange(tools)] for _ in range(chance.randint(0, 7)))
        first = ToolCall(chance.choice(TOOLS[:5]), {"x": chance.randint(0, 30)})
        query = " ".join(chance.choice(words) for _ in range(8)) if queries else ""
        reward = float(chance.random() < 0.5)
        found.append(case(number, query, rest, first=first, task=f"t{number}", reward=reward))
    return found


def unexplained_tasks(seed: int, count: int = 400) -> list[Case]:
    """Return short runs of 150 tasks by chance: the most frequent course is one call alone."""
    chance = Random(seed)
    words = [f"word{number}" for number in range(300)]
    found = []
    for number in range(count):
        tools = [f"t{chance.randrange(4)}"]
        while chance.random() < 0.7 and len(tools) < 7:
            tools.append(f"t{chance.randrange(5)}")
        query, reward = " ".join(chance.sample(words, 6)), float(chance.random() < 0.6)
        calls = tuple(ToolCall(tool, {"a": chance.randrange(3)}) for tool in tools)
        task = f"t{number % 150}"
        found.append(Case(f"run-{number}", task, task, "default", query, calls, reward, None))
    return found
