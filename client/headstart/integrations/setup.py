"""What an integration needs, from a few arguments: predictor, thresholds, emitter, speculator."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any, Final, Unpack

from headstart.arguments import environment
from headstart.arguments.checks import (
    InvalidArgument,
    flag,
    identifier,
    mapping,
    number,
    refuse_unknown,
)
from headstart.arguments.options import names_in
from headstart.emitting.workflow import process_emitter
from headstart.events.constructors import in_scope
from headstart.prediction.interface import Predictor, RunPredictor
from headstart.prediction.predictor import CallPredictor
from headstart.shared_learning.shared_learning import SharedLearning, process_shared_learning
from headstart.speculation.agent_run import GUESS_S, AgentRun
from headstart.speculation.prediction_log import EventSink
from headstart.speculation.speculator import AsyncSpeculator, Speculator
from headstart.speculation.speculator_options import Options
from headstart.speculation.thread_agent_run import ThreadAgentRun
from headstart.thresholds.reader import AsyncThresholds, Thresholds

_LOG: Final = logging.getLogger(__name__)

LIMIT: Final = 3
"""Guesses at each call of the model."""


class SpeculationSetup:
    """Makes the runs of one agent: `run()` returns the `AgentRun` that its hooks call.

        setup = SpeculationSetup("refund", read_only=["search"])
        run = setup.run(tools, user_id="u7")

    Everything that is not given is made: the emitter of the process to HEADSTART_KAFKA
    (127.0.0.1:9092), a reader of HEADSTART_REDIS (redis://127.0.0.1:6379/0), a predictor that
    learns from the runs of this process, and a speculator.

    Args:
        workflow_type: Kind of workflow that the agent runs.
        read_only: Tools that are safe to run early and to discard. Tools that are
            annotated as read-only need not be named.
        tenant: Of all runs.
        agent_id: Of all runs; it may have a mode of its own.
        user_id: Of the runs that are given no other.
        context: Of all runs: levels such as `domain`, and content to log.
        predictor: Guesses calls, and learns them.
        shared_learning: Learn together with other executors: True, or a `SharedLearning`. Default:
            HEADSTART_SHARED_LEARNING. It needs HEADSTART_HASH_KEY.
        emitter: Where runs, guesses and outcomes are logged.
        thresholds: Reader of thresholds and modes.
        speculator: Decides. Instead of `emitter`, `thresholds`, `read_only` and `options`.
        thread_thresholds: `thresholds` for agents in threads.
        thread_speculator: `speculator` for agents in threads.
        limit: Guesses at each call of the model; 0 only logs.
        guess_s: Seconds within which the predictor guesses; a later guess is not used.
        parallel: The framework makes the calls of a turn at once.
        **options: Of the speculator, such as `dangerous`; see `Options`.
    """

    def __init__(  # noqa: PLR0913 - settings, each by its name
        self,
        workflow_type: str,
        *,
        read_only: Collection[str] = (),
        tenant: str | None = None,
        agent_id: str | None = None,
        user_id: str | None = None,
        context: Mapping[str, object] | None = None,
        predictor: Predictor | None = None,
        shared_learning: SharedLearning | bool | None = None,
        emitter: EventSink | None = None,
        thresholds: AsyncThresholds | None = None,
        speculator: AsyncSpeculator | None = None,
        thread_thresholds: Thresholds | None = None,
        thread_speculator: Speculator | None = None,
        limit: int = LIMIT,
        guess_s: float = GUESS_S,
        parallel: bool = True,
        **options: Unpack[Options],
    ) -> None:
        """Check the arguments; waits for no connection. Raises `InvalidArgument`."""
        refuse_unknown("SpeculationSetup", options, Options.__annotations__)
        self.context = _context(
            workflow_type, context, tenant=tenant, agent_id=agent_id, user_id=user_id
        )
        self.limit = int(number("limit", limit, 0, whole=True))
        self.guess_s = number("guess_s", guess_s, 0.0, above=True, unit="seconds")
        self.parallel = flag("parallel", parallel)
        self._shared = _shared_learning(shared_learning, predictor)
        self._predictor: Predictor = CallPredictor() if predictor is None else predictor
        if not callable(getattr(self._predictor, "run", None)):
            raise InvalidArgument(f"predictor must have a method run(), not {predictor!r:.64}")
        self._predictor_of(self.context)  # so that what others have learned is loaded meanwhile
        given_one = speculator is not None or thread_speculator is not None
        readers = (emitter, thresholds, thread_thresholds)
        if given_one and (read_only or options or any(each is not None for each in readers)):
            raise InvalidArgument(
                "a speculator has an emitter, thresholds, read_only tools and options of its own: "
                "give them to it"
            )
        options["allowed"] = {
            *names_in("read_only", read_only), *names_in("allowed", options.get("allowed", ()))
        }  # fmt: skip
        self._emitter, self._thresholds, self._options = emitter, thresholds, options
        self._thread_thresholds, self._thread_speculator = thread_thresholds, thread_speculator
        self._speculator, self._given_one = speculator, given_one
        if not given_one:
            self._speculator = self._made_speculator()
        self._lock = threading.Lock()
        self._unchecked = names_in("read_only", read_only)

    @classmethod
    def of(cls, setup: SpeculationSetup | None, arguments: Mapping[str, Any]) -> SpeculationSetup:
        """Return a set-up that was given, or made of arguments. Raises `InvalidArgument`."""
        if setup is None:
            if "workflow_type" not in arguments:
                raise InvalidArgument("workflow_type is missing: name the kind of workflow")
            return cls(**arguments)
        if arguments:
            raise InvalidArgument(f"setup has these of its own: {', '.join(arguments)}")
        return setup

    @property
    def speculator(self) -> AsyncSpeculator:
        """What decides in event loops. Raises `InvalidArgument` if only the other was given."""
        if self._speculator is None:
            raise InvalidArgument("speculator is missing: the agent runs in an event loop")
        return self._speculator

    @property
    def thread_speculator(self) -> Speculator:
        """What decides in threads; made at its first use.

        Raises `InvalidArgument` if only the other was given.
        """
        with self._lock:
            if self._thread_speculator is None:
                if self._given_one:
                    raise InvalidArgument("thread_speculator is missing: the agent runs in threads")
                thresholds = self._thread_thresholds
                self._thread_speculator = Speculator(
                    Thresholds(environment.redis()) if thresholds is None else thresholds,
                    self._sink(), **self._options,
                )  # fmt: skip
            return self._thread_speculator

    def _made_speculator(self) -> AsyncSpeculator:
        thresholds = self._thresholds
        reader = AsyncThresholds(environment.redis()) if thresholds is None else thresholds
        return AsyncSpeculator(reader, self._sink(), **self._options)

    def _sink(self) -> EventSink:
        return process_emitter() if self._emitter is None else self._emitter

    def run_context(self, context: Mapping[str, object] | None = None) -> Mapping[str, object]:
        """Return the context of a run: that of the set-up with the fields of `context`."""
        more = {name: value for name, value in (context or {}).items() if value is not None}
        return {**self.context, **more}

    def run_predictor(self, context: Mapping[str, object] | None = None) -> RunPredictor:
        """Return the predictor of a run, or of several that belong to one conversation."""
        complete = in_scope(self.run_context(context))
        agent, user = complete.get("agent_id") or "", complete.get("user_id") or ""
        return self._predictor_of(complete).run(agent=str(agent), user_id=str(user))

    def _predictor_of(self, context: Mapping[str, object]) -> Predictor:
        if self._shared is None:
            return self._predictor
        tenant = str(context.get("tenant") or "default")
        return self._shared.predictor(str(context["workflow_type"]), tenant)

    def run(
        self,
        tools: Mapping[str, object] | None = None,
        context: Mapping[str, object] | None = None,
        *,
        predictor: RunPredictor | None = None,
    ) -> AgentRun[Any]:
        """Begin a run of the agent.

        Args:
            tools: The agent's tools by name, as for `AgentRun`.
            context: Of this run, such as `workflow_id`, `user_id` and `session_id`; it takes
                precedence over that of the set-up. None stands for an absent value.
            predictor: That of the conversation which the run continues.

        Raises:
            InvalidArgument, InvalidEvent: Names the key that cannot be used.
        """
        return AgentRun(self.speculator, **self._of_run(tools, context, predictor))

    def thread_run(
        self,
        tools: Mapping[str, object] | None = None,
        context: Mapping[str, object] | None = None,
        *,
        predictor: RunPredictor | None = None,
    ) -> ThreadAgentRun[Any]:
        """Begin a run of an agent that runs in threads; see `run`."""
        return ThreadAgentRun(self.thread_speculator, **self._of_run(tools, context, predictor))

    def _of_run(
        self,
        tools: Mapping[str, object] | None,
        context: Mapping[str, object] | None,
        predictor: RunPredictor | None,
    ) -> dict[str, Any]:
        """Return the arguments of a run beside its speculator."""
        self._warn_of_unknown(tools)
        return {
            "context": self.run_context(context),
            "predictor": predictor or self.run_predictor(context),
            "tools": tools,
            "limit": self.limit,
            "guess_s": self.guess_s,
            "parallel": self.parallel,
        }

    def _warn_of_unknown(self, tools: Mapping[str, object] | None) -> None:
        """Warn once of names in `read_only` that no tool of the first run with tools has."""
        if not tools:
            return
        unchecked, self._unchecked = self._unchecked, frozenset()
        for name in sorted(unchecked - tools.keys()):
            near = get_close_matches(name, tools, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            _LOG.warning("read_only names %s, which is no tool of this agent%s", name, hint)

    async def close(self) -> None:
        """Close the open turns, and wait for the calls that this cancels, at most 5 s."""
        if self._thread_speculator is not None:
            self._thread_speculator.close()
        if self._speculator is not None:
            await self._speculator.close()


def _shared_learning(
    given: SharedLearning | bool | None, predictor: Predictor | None
) -> SharedLearning | None:
    """Return what a set-up learns with; None: alone. Raises `InvalidArgument`."""
    if given is None:
        given = predictor is None and environment.shared_learning()
    if given is False:
        return None
    if predictor is not None:
        raise InvalidArgument("shared_learning has predictors of its own: leave predictor out")
    if given is True:
        return process_shared_learning()
    if not callable(getattr(given, "predictor", None)):
        raise InvalidArgument(
            f"shared_learning must be True, False or a SharedLearning, not {given!r:.64}"
        )
    return given


def _context(
    workflow_type: str, context: Mapping[str, object] | None, **fields: str | None
) -> Mapping[str, object]:
    """Return the context of all runs. Raises `InvalidArgument`."""
    identifier("workflow_type", workflow_type)
    given = {} if context is None else mapping("context", context)
    for name, value in fields.items():
        identifier(name, value, none=True)
    named = {name: value for name, value in fields.items() if value is not None}
    return {**given, "workflow_type": workflow_type, **named}
