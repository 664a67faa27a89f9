"""`SpeculationRunner`: runs an agent as the SDK's `Runner` does, and speculates."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final

from headstart.integrations.openai_agents.agent_copies import AgentCopies, original
from headstart.integrations.openai_agents.framework import sdk
from headstart.integrations.openai_agents.observed_run import ObservedAgentsRun, ObservingHooks
from headstart.integrations.setup import SpeculationSetup

_LOG: Final = logging.getLogger(__name__)
_current: ContextVar[ObservedAgentsRun | None] = ContextVar("headstart_observed_run", default=None)


class SpeculationRunner:
    """Starts the calls that the model will probably request while it still works them out.

        runner = SpeculationRunner(workflow_type="refund", read_only=["search"])
        result = await runner.run(agent, "Where is order 7?")

    Its methods take what those of the SDK's `Runner` take, `hooks=` too. Agents are copied for
    each run; `result.last_agent` is a copy, which the next run recognises.
    Arguments: those of `SpeculationSetup`.
    """

    def __init__(self, *, setup: SpeculationSetup | None = None, **arguments: Any) -> None:
        """Use a set-up, or make one of the arguments. Raises `InvalidArgument` for a wrong one."""
        self.setup = SpeculationSetup.of(setup, arguments)

    async def run(self, starting_agent: Any, input: Any, **options: Any) -> Any:
        """Run an agent as `Runner.run` does."""
        observed = self._observed(starting_agent, input, options)
        if observed is None:
            return await sdk.Runner.run(original(starting_agent), input, **options)
        agent, options = _prepared(observed, starting_agent, options)
        with _as_current(observed):
            try:
                result = await sdk.Runner.run(agent, input, **options)
            except BaseException as error:
                observed.ended_by(error)
                raise
        observed.ended(result)
        return result

    def run_sync(self, starting_agent: Any, input: Any, **options: Any) -> Any:
        """Run an agent as `Runner.run_sync` does, in the thread's own event loop."""
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            raise ValueError("run_sync() blocks the event loop that is running: await run()")
        loop = _loop_of_thread()
        task = loop.create_task(self.run(starting_agent, input, **options))
        try:
            return loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    loop.run_until_complete(task)
            raise
        finally:  # and lets cancelled guesses end
            loop.run_until_complete(loop.shutdown_asyncgens())

    def run_streamed(self, starting_agent: Any, input: Any, **options: Any) -> Any:
        """Run an agent as `Runner.run_streamed` does."""
        observed = self._observed(starting_agent, input, options)
        if observed is None:
            return sdk.Runner.run_streamed(original(starting_agent), input, **options)
        agent, options = _prepared(observed, starting_agent, options)
        with _as_current(observed):
            try:
                result = sdk.Runner.run_streamed(agent, input, **options)
            except BaseException as error:
                observed.ended_by(error)
                raise

        def ended(task: asyncio.Task[Any]) -> None:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if error is not None:
                observed.ended_by(error)
            else:
                observed.ended(result)

        result.run_loop_task.add_done_callback(ended)
        return result

    async def close(self) -> None:
        """Close the open turns, and stop their guessed calls."""
        await self.setup.close()

    def _observed(
        self, agent: Any, given: Any, options: Mapping[str, Any]
    ) -> ObservedAgentsRun | None:
        """Return a new run, or None if that fails: the agent runs without."""
        try:
            run = self.setup.run({})
            for text in _user_texts(given):
                run.user(text)
            config = options.get("run_config")
            return ObservedAgentsRun(run, config, guarded=_is_guarded(agent, config))
        except Exception as error:
            _LOG.warning("a run of the agent goes on without guesses: %r", error)
            return None


def _prepared(
    observed: ObservedAgentsRun, agent: Any, options: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:
    hooks = ObservingHooks(observed, options.get("hooks"))
    return AgentCopies(_current.get).of(agent), {**options, "hooks": hooks}


@contextmanager
def _as_current(observed: ObservedAgentsRun) -> Iterator[None]:
    token = _current.set(observed)
    try:
        yield
    finally:
        _current.reset(token)


def _is_guarded(agent: Any, config: Any) -> bool:
    """Return whether input guardrails run beside the first call of the model."""
    of_config = (
        config.get("input_guardrails") if isinstance(config, Mapping)
        else getattr(config, "input_guardrails", None)
    )  # fmt: skip
    return any(each.run_in_parallel for each in [*agent.input_guardrails, *(of_config or ())])


def _user_texts(given: Any) -> list[str]:
    """Return the texts of the user after the model's last message."""
    if isinstance(given, str):
        return [given]
    texts: list[str] = []
    for item in reversed(given if isinstance(given, list) else []):
        if item.get("role") != "user":
            break
        content = item.get("content")
        parts = [content] if isinstance(content, str) else [
            part.get("text", "") for part in content or () if isinstance(part, Mapping)
        ]  # fmt: skip
        texts.append("".join(parts))
    return texts[::-1]


def _loop_of_thread() -> asyncio.AbstractEventLoop:
    """Return the event loop that `Runner.run_sync` would use: clients are bound to it."""
    policy = asyncio.get_event_loop_policy()
    try:
        loop = policy.get_event_loop()
    except RuntimeError:
        loop = policy.new_event_loop()
        policy.set_event_loop(loop)
    if loop.is_closed():
        loop = policy.new_event_loop()
        policy.set_event_loop(loop)
    return loop
