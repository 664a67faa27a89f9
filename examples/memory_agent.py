"""An agent with a memory: it logs its runs, and asks how earlier ones went before the next.

Run it beside `headstart up`:  python examples/memory_agent.py KAFKA POSTGRES   (as `up` prints)
"""

import sys
import time

import headstart
from memory.retrieval.client import Memory

ASKED = {
    "refund": ("I want my money back for {}", "please refund {}", "{} came broken, refund me"),
    "track": ("where is {}", "when will {} arrive", "has {} been sent yet"),
}
THINGS = ("my lamp", "the blue chair", "my headphones", "the desk", "a kettle", "my new phone")
kafka, postgres = sys.argv[1:3]


def tools_of(number: int, intent: str) -> list[str]:
    """Return the calls of a run. A refund fails where the policy was not read."""
    if intent == "track":
        return ["find_order", "track_parcel"]
    if number % 4 == 0:
        return ["find_order", "refund_order"]
    return ["find_order", "read_policy", "refund_order"]


def log(emitter: headstart.Emitter, number: int, intent: str, query: str) -> None:
    """Log a run: what was asked, the calls that were made, how it ended."""
    tools = tools_of(number, intent)
    with headstart.workflow(
        workflow_type="support",
        workflow_id=f"memory-{number}",
        user_id=f"u{number % 5}",
        emitter=emitter,
    ) as run:
        for step, tool in enumerate(tools):
            arguments = {"query": query} if step == 0 else {}
            run.emit(
                headstart.task_complete(
                    task_id=str(step), tool_id=tool, success=True, data={"arguments": arguments}
                )
            )
        failed = tools == ["find_order", "refund_order"]
        run.complete("failure" if failed else "success", query=query)


with headstart.Emitter(kafka) as emitter:
    asked = [
        (intent, form.format(thing))
        for thing in THINGS
        for intent, forms in ASKED.items()
        for form in forms
    ]
    for number, (intent, query) in enumerate(asked):
        log(emitter, number, intent, query)
    emitter.flush()

with Memory(postgres) as memory:
    deadline = time.monotonic() + 120
    while len(memory.search("my order", k=100).episodes) < len(asked):
        if time.monotonic() > deadline:
            sys.exit("the memory worker has not stored the runs: see `headstart status`")
        time.sleep(0.5)
    print(memory.context("could you give me my money back for the sofa?").text)
