"""The hooks around an agent's model and tools, which middleware and graphs have in common."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langgraph.errors import GraphBubbleUp

from headstart.integrations.langchain.conversations import (
    LEFT_S,
    Conversation,
    Conversations,
    last_answer,
    new_user_texts,
)
from headstart.integrations.langchain.guessed_tools import (
    GuessableTools,
    by_name,
    make_blocking_call,
    make_call,
)
from headstart.integrations.langchain.run_config import context_of_config
from headstart.integrations.setup import SpeculationSetup
from headstart.speculation.agent_run import AgentRun
from headstart.speculation.guessed_call import GuessFailed
from headstart.speculation.thread_agent_run import ThreadAgentRun

_LOG: Final = logging.getLogger(__name__)

AnswerOf = Callable[[Any], AIMessage | None]
"""Finds the model's message in what a node or handler returned."""


class SpeculationHooks:
    """Observes the calls of the model and of tools, and answers those that were guessed."""

    def __init__(self, setup: SpeculationSetup) -> None:
        self.setup = setup
        self.guessable = GuessableTools()
        self.answers = True
        """Whether guesses are started; False only logs."""
        self.left_s = LEFT_S
        self._warned = False
        self.in_loops: Conversations[AgentRun[Any]] = Conversations()
        self.in_threads: Conversations[ThreadAgentRun[Any]] = Conversations()

    async def around_model(
        self,
        messages: Sequence[AnyMessage],
        tools: Iterable[object],
        call: Callable[[], Awaitable[Any]],
        answer_of: AnswerOf,
    ) -> Any:
        """Call the model, and start guessed calls meanwhile."""
        tools = list(tools)
        conversation = self._continued(self.in_loops, messages, tools, self.setup.run)
        known = by_name(tools)

        async def make(tool: str, arguments: Mapping[str, object]) -> ToolMessage:
            return await make_call(known[tool], arguments)

        if conversation is not None and self.answers:
            conversation.run.model_started(make)
        try:
            result = await call()
        except BaseException:
            self._model_failed(self.in_loops, messages, conversation)
            raise
        self._answered(self.in_loops, messages, conversation, answer_of, result)
        if conversation is not None:
            conversation.leave_later(asyncio.get_running_loop(), self.left_s)
        return result

    def around_blocking_model(
        self,
        messages: Sequence[AnyMessage],
        tools: Iterable[object],
        call: Callable[[], Any],
        answer_of: AnswerOf,
    ) -> Any:
        """Call the model in this thread, and start guessed calls in others meanwhile."""
        tools = list(tools)
        conversation = self._continued(self.in_threads, messages, tools, self.setup.thread_run)
        known = by_name(tools)

        def make(tool: str, arguments: Mapping[str, object]) -> ToolMessage:
            return make_blocking_call(known[tool], arguments)

        if conversation is not None and self.answers:
            conversation.run.model_started(make)
        try:
            result = call()
        except BaseException:
            self._model_failed(self.in_threads, messages, conversation)
            raise
        self._answered(self.in_threads, messages, conversation, answer_of, result)
        return result

    async def around_tool(
        self, request: Any, handler: Callable[[Any], Awaitable[Any]], *, may_answer: bool = True
    ) -> Any:
        """Answer a call with its guessed result, or make it."""
        conversation = self.in_loops.find(messages_of(request.state))
        if conversation is None:
            return await handler(request)
        with _ToolCall(conversation, request.tool_call) as made:
            if made.match is not None and may_answer:
                try:
                    made.answered(await made.match.result())
                except GuessFailed as error:
                    _LOG.debug("the call is made: %s", error)
            if made.result is None:
                made.result = await handler(request)
        return made.result

    def around_blocking_tool(
        self, request: Any, handler: Callable[[Any], Any], *, may_answer: bool = True
    ) -> Any:
        """Answer a call with its guessed result, or make it in this thread."""
        conversation = self.in_threads.find(messages_of(request.state))
        if conversation is None:
            return handler(request)
        with _ToolCall(conversation, request.tool_call) as made:
            if made.match is not None and may_answer:
                try:
                    made.answered(made.match.result())
                except GuessFailed as error:
                    _LOG.debug("the call is made: %s", error)
            if made.result is None:
                made.result = handler(request)
        return made.result

    def _continued(
        self,
        known: Conversations[Any],
        messages: Sequence[AnyMessage],
        tools: Sequence[object],
        new_run: Callable[..., Any],
    ) -> Conversation[Any] | None:
        """Return the conversation that the messages continue, or begin; None if that fails."""
        try:
            found = known.take(messages)
            if found is not None and found.missed_tools:
                self._warn_of_missed_tools()
            if found is None or found.ended:
                hints, context = self.guessable.hints(tools), context_of_config()
                predictor = self.setup.run_predictor(context) if found is None else found.predictor
                found = Conversation(predictor, new_run(hints, context, predictor=predictor))
            for text in new_user_texts(messages):
                found.run.user(text)
            return found
        except Exception as error:
            _LOG.warning("a run of the agent goes on without guesses: %r", error)
            return None

    def _warn_of_missed_tools(self) -> None:
        if not self._warned:
            self._warned = True
            _LOG.warning(
                "the tools of this graph run outside of the hooks, so no guess can answer them: "
                "make their node by ToolNode(tools, **speculation.wrappers)"
            )

    def _model_failed(
        self,
        known: Conversations[Any],
        messages: Sequence[AnyMessage],
        conversation: Conversation[Any] | None,
    ) -> None:
        if conversation is not None:
            conversation.run.model_failed()
            known.put(last_answer(messages), conversation)

    def _answered(
        self,
        known: Conversations[Any],
        messages: Sequence[AnyMessage],
        conversation: Conversation[Any] | None,
        answer_of: AnswerOf,
        result: object,
    ) -> None:
        if conversation is None:
            return
        try:
            answer = answer_of(result)
            if answer is None:
                self._model_failed(known, messages, conversation)
                return
            if answer.id is None:
                answer.id = str(uuid4())
            conversation.answered(answer)
            known.put(answer, conversation)
        except Exception as error:
            _LOG.warning("a turn of the agent goes on without its guesses: %r", error)
            conversation.run.model_failed()

    async def close(self) -> None:
        """End the runs that are under way, and stop their guessed calls."""
        self.in_loops.end_all()
        self.in_threads.end_all()
        await self.setup.close()


def messages_of(state: Any) -> Sequence[AnyMessage]:
    """Return the messages of a graph's state: a list, a mapping or an object."""
    if isinstance(state, list):
        return state
    if isinstance(state, Mapping):
        return state.get("messages") or ()
    return getattr(state, "messages", None) or ()


class _ToolCall:
    """One call of a tool, whose end is reported to its conversation when the block is left."""

    def __init__(self, conversation: Conversation[Any], call: Mapping[str, Any]) -> None:
        self._conversation, self._call = conversation, call
        self._begun = time.perf_counter()
        self.result: Any = None
        self.match = conversation.called(call)
        """The guessed call that answers it, if there is one."""

    def answered(self, message: ToolMessage) -> None:
        """Take the result of the guessed call."""
        self.result = message.model_copy(update={"tool_call_id": self._call["id"]})

    def __enter__(self) -> _ToolCall:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, GraphBubbleUp):
            self._conversation.paused(self._call["id"])
        elif error is not None:
            self._ended(repr(error), error=True)
        else:
            result = self.result
            message = isinstance(result, ToolMessage)
            failed = message and result.status == "error"
            self._ended(result.content if message else result, error=failed)

    def _ended(self, content: object, *, error: bool) -> None:
        took_ms = (time.perf_counter() - self._begun) * 1000.0
        self._conversation.finished(self._call["id"], content, error=error, duration_ms=took_ms)
