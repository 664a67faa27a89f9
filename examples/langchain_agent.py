"""The agent of LangChain's quickstart, with speculation: the three lines marked with `# +`.

    pip install './client[langchain]'
    HEADSTART_KAFKA=127.0.0.1:PORT HEADSTART_REDIS=redis://127.0.0.1:PORT/0 \\
        python examples/langchain_agent.py

The model is a stand-in that needs no key: it takes 0.4 s to answer, and the tool 0.3 s.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from headstart.integrations.langchain import SpeculationMiddleware  # +

CITIES = ("Berlin", "Boston", "Lima", "Oslo", "Paris", "Quito", "Sydney", "Tokyo")
QUESTIONS = 200


class StandIn(BaseChatModel):  # type: ignore[misc]
    """Asks for the weather of the city in the question, then answers."""

    @property
    def _llm_type(self) -> str:
        return "stand-in"

    def bind_tools(self, tools: Sequence[Any], **more: Any) -> StandIn:  # noqa: ARG002
        """Return the model: it knows its tool."""
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        time.sleep(0.4)
        last = messages[-1]
        if isinstance(last, ToolMessage):
            answer = AIMessage(last.text)
        else:
            city = last.text.removesuffix("?").split()[-1]
            call = {"name": "get_weather", "args": {"city": city}, "id": "call-1"}
            answer = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=answer)])


def get_weather(city: str) -> str:
    """Get weather for a given city."""
    time.sleep(0.3)
    return f"It's always sunny in {city}!"


agent = create_agent(
    model=StandIn(),
    tools=[get_weather],
    system_prompt="You are a helpful assistant",
    middleware=[  # +
        SpeculationMiddleware(workflow_type="weather", read_only=["get_weather"])  # +
    ],
)


def main() -> None:
    """Ask about the weather, and print how long every twentieth answer took."""
    for number in range(1, QUESTIONS + 1):
        city = random.choice(CITIES)
        begun = time.perf_counter()
        agent.invoke({"messages": [{"role": "user", "content": f"what is the weather in {city}?"}]})
        if number == 1 or number % 20 == 0:
            print(f"question {number}: {time.perf_counter() - begun:.2f} s")


if __name__ == "__main__":
    main()
