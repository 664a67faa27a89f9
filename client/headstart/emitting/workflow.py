"""The scope of one workflow run: fills in its ids, emits its end, and flushes."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from headstart.arguments import environment
from headstart.arguments.checks import InvalidArgument, number, refuse_unknown
from headstart.arguments.names import refuse_fields
from headstart.emitting.emitter import Emitter, NotDelivered
from headstart.events import constructors
from headstart.events.schema import FIRST_MS, InvalidEvent, new_id
from headstart.events.validation import validate

log = logging.getLogger("headstart")

FLUSH_S: Final = 5.0
"""Seconds that the end of a workflow waits for the broker; later events stay in the spool."""


class Workflow:
    """One run of a workflow: a context manager, sync or async, made by `headstart.workflow`.

    with headstart.workflow(workflow_type="refund", tenant="acme", user_id="u7") as run:
        run.emit(headstart.task_complete(task_id="1", tool_id="search", success=True))
        run.complete(outcome="success", response="refunded")

    Constructors and speculators called in the block, or in tasks started there, take its ids.
    `run.emit` emits an event of this run, whatever scope or thread is current; an event after the
    end is sent, and the first one is warned of. Without `complete` the outcome is `success`,
    `failure` if an exception left the block, `aborted` if it was cancelled or interrupted. If the
    broker does not confirm the end in time, that is logged, not raised. A run is entered once.
    """

    def __init__(self, emitter: Emitter, fields: Mapping[str, Any], flush_s: float) -> None:
        self._emitter, self._flush_s = emitter, flush_s
        self._fields = constructors.Fields(fields)
        self._ended: str | None = None
        self._ending = threading.Lock()
        self._begun: float | None = None
        self._late = False

    @property
    def id(self) -> str:
        """The workflow's id."""
        return str(self._fields["workflow_id"])

    def emit(self, event: Mapping[str, Any] | None = None, /, **unknown: Any) -> str:
        """Emit one event of this run and return its id; missing ids are filled in.

        An event after the run's end, as of a task that ends late, is sent too; the first one is
        warned of.

        Raises:
            InvalidArgument: The argument is not one mapping.
            InvalidEvent: The event names another workflow, or breaks the contract.
            RuntimeError: A second `workflow_complete`.
            BufferFull, OSError: As `Emitter.emit`.
        """
        if unknown or not isinstance(event, Mapping):
            given = f"argument {next(iter(unknown))!r}" if unknown else f"event {event!r:.64}"
            raise InvalidArgument(
                f"Workflow.emit() takes one mapping and no {given}; give it one event, such as "
                "run.emit(headstart.task_complete(...)) or run.emit({...})"
            )
        own = constructors.within(event, self._fields)
        if own.get("event_type") != "workflow_complete":
            if self._ended is not None:
                self._warn_of_late(own.get("event_type"))
            return self._emitter.emit(own)
        self._end_once(str((own.get("data") or {}).get("outcome")))
        try:
            return self._emitter.emit(own)
        except BaseException:
            self._ended = None
            raise

    def _warn_of_late(self, kind: object) -> None:
        with self._ending:
            warned, self._late = self._late, True
        if not warned:
            log.warning(
                "workflow %s had completed (%s) when a %s was emitted: it is sent, but belongs "
                "before the end; await the run's tasks first. Further ones are not logged",
                self.id, self._ended, kind,
            )  # fmt: skip

    def _end_once(self, outcome: str) -> None:
        with self._ending:
            if self._ended is not None:
                raise RuntimeError(
                    f"workflow {self.id} has already completed ({self._ended}): use another "
                    "headstart.workflow() for another run"
                )
            self._ended = outcome

    def complete(self, outcome: constructors.Outcome, **fields: Any) -> str:
        """Emit the end of the run and return its id; `fields` as in `workflow_complete`.

        Raises `RuntimeError` if the run has completed, also by leaving its block.
        """
        spent: dict[str, Any] = {}
        if self._begun is not None:
            spent = {"execution_time_ms": (time.monotonic() - self._begun) * 1000}
        with constructors.inside(self._fields):
            event = constructors.workflow_complete(outcome=outcome, **{**spent, **fields})
        return self.emit(event)

    def _enter(self) -> None:
        if self._begun is not None:
            raise RuntimeError(
                f"workflow {self.id} was entered before; use another headstart.workflow()"
            )
        self._begun = time.monotonic()
        constructors.enter(self._fields)

    def _end(self, error: BaseException | None) -> None:
        try:
            if self._ended is None:
                self.complete(_outcome(error))
            self._emitter.flush(self._flush_s)
        except (NotDelivered, OSError, RuntimeError) as failure:
            log.warning("workflow %s has ended: %s", self.id, failure)

    def _leave(self) -> None:
        constructors.leave(self._fields)

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._end(error)
        finally:
            self._leave()

    async def __aenter__(self) -> Self:
        self._enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        import asyncio  # not at the top: the threaded client does without

        try:
            await asyncio.to_thread(self._end, error)
        finally:
            self._leave()


def workflow(  # noqa: PLR0913 - each by its name
    *,
    workflow_type: str = "",
    tenant: str | None = "default",
    user_id: str | None = None,
    workflow_id: str | None = None,
    agent_id: str | None = None,
    session_id: str | None = None,
    context: Mapping[str, Any] | None = None,
    emitter: Emitter | None = None,
    flush_s: float = FLUSH_S,
    **unknown: Any,
) -> Workflow:
    """Return the scope of one workflow run, to be entered with `with` or `async with`.

    Args:
        workflow_type: Kind of workflow; required.
        tenant: Tenant of all its events.
        user_id: As in an event.
        workflow_id: Id of the run; default a new UUIDv7.
        agent_id: As in an event.
        session_id: As in an event.
        context: `data.context` of its events, such as `domain`.
        emitter: Default: one for the process, to HEADSTART_KAFKA (127.0.0.1:9092).
        flush_s: Seconds that the end waits for the broker.

    Raises:
        InvalidEvent: Names the field that is not a valid identifier.
        InvalidArgument: Names an unknown argument, or a key of `context` that belongs elsewhere,
            such as `user_id`.
    """
    refuse_unknown("workflow", unknown, _ARGUMENTS)
    named = {
        "workflow_type": workflow_type, "tenant": "default" if tenant is None else tenant,
        "workflow_id": new_id() if workflow_id is None else workflow_id,
        "user_id": user_id, "agent_id": agent_id, "session_id": session_id,
    }  # fmt: skip
    fields = {name: value for name, value in named.items() if value is not None}
    if workflow_type == "" or workflow_type is None:
        raise InvalidEvent("workflow_type", "is missing: name the kind of workflow that runs")
    if context is not None and not isinstance(context, Mapping):
        raise InvalidEvent("context", f"must be an object, not {context!r:.100}")
    end = {"event_type": "workflow_complete", "id": new_id(), "timestamp": FIRST_MS}
    validate({**end, **fields})
    if context:
        refuse_fields("workflow", context, _ARGUMENTS)
        fields["context"] = dict(context)  # type: ignore[assignment]
    if emitter is not None and not callable(getattr(emitter, "emit", None)):
        raise InvalidArgument(f"emitter must be an Emitter, not {emitter!r:.100}")
    flush_s = number("flush_s", flush_s, 0.0, float("inf"))
    return Workflow(process_emitter() if emitter is None else emitter, fields, flush_s)


_ARGUMENTS: Final = frozenset(workflow.__kwdefaults__ or ())


_guard = threading.Lock()
_emitter: Emitter | None = None


def process_emitter() -> Emitter:
    """Return the emitter of this process, to HEADSTART_KAFKA; it is made at the first use."""
    global _emitter  # noqa: PLW0603 - one for the process, created at the first use
    with _guard:
        if _emitter is None:
            _emitter = Emitter(environment.kafka())
        return _emitter


def _after_fork() -> None:
    global _guard  # noqa: PLW0603 - a thread of the parent may hold it
    _guard = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _outcome(error: BaseException | None) -> constructors.Outcome:
    if error is None:
        return "success"
    if isinstance(error, Exception):
        return "failure"
    return "aborted"
