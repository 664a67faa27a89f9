"""The scope of one workflow: fills in its ids, says how it ended, and flushes."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping
from contextvars import Token
from types import TracebackType
from typing import Any, Final, Self

from headstart import kinds
from headstart.emitter import Emitter, NotDelivered
from headstart.events import InvalidEvent, new_id
from headstart.validation import validate

log = logging.getLogger("headstart")

FLUSH_S: Final = 5.0
"""How long the end of a workflow waits for the broker; what waits longer stays in the spool."""


class Workflow:
    """One run of a workflow, from `with` until its end. Use one only once.

    with headstart.workflow(type="refund", tenant="acme", user="u7") as run:
        run.emit(headstart.task_complete(task_id="1", tool_id="search", success=True))
        run.complete(outcome="success", response="refunded")

    Constructors called within, also in tasks that are started within, know its ids; a thread of
    one's own knows them under `contextvars.copy_context().run`. Without `complete` its end is
    `success`, `failure` where an exception left the block, `aborted` where it was cancelled or
    interrupted. An end that the broker does not confirm in time is logged, and never raised.
    """

    def __init__(self, emitter: Emitter, fields: Mapping[str, Any], flush_s: float) -> None:
        self._emitter, self._fields, self._flush_s = emitter, fields, flush_s
        self._completed = False
        self._begun = 0.0
        self._token: Token[Mapping[str, Any]] | None = None

    @property
    def id(self) -> str:
        """The workflow's id."""
        return str(self._fields["workflow_id"])

    def emit(self, event: Mapping[str, Any]) -> str:
        """Emit one event and return its id; raises what `Emitter.emit` raises."""
        if event.get("event_type") == "workflow_complete":
            self._completed = True
        return self._emitter.emit(event)

    def complete(self, outcome: kinds.Outcome, **fields: Any) -> str:
        """Say how it ended; `fields` as in `workflow_complete`."""
        spent = {"execution_time_ms": (time.monotonic() - self._begun) * 1000}
        return self.emit(kinds.workflow_complete(outcome=outcome, **{**spent, **fields}))

    def _enter(self) -> None:
        self._begun = time.monotonic()
        self._token = kinds.scope.set(self._fields)

    def _end(self, error: BaseException | None) -> None:
        try:
            if not self._completed:
                self.complete(_outcome(error))
            self._emitter.flush(self._flush_s)
        except (NotDelivered, OSError, RuntimeError) as failure:
            log.warning("workflow %s has ended: %s", self.id, failure)

    def _leave(self) -> None:
        if self._token is not None:
            kinds.scope.reset(self._token)
            self._token = None

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
        import asyncio  # which is there where this is awaited, and nowhere else is needed

        try:
            await asyncio.to_thread(self._end, error)  # with this task's scope
        finally:
            self._leave()


def workflow(  # noqa: PLR0913 - each by its name
    *,
    type: str,
    tenant: str = "default",
    user: str | None = None,
    id: str | None = None,
    agent: str | None = None,
    session: str | None = None,
    context: Mapping[str, Any] | None = None,
    emitter: Emitter | None = None,
    flush_s: float = FLUSH_S,
) -> Workflow:
    """Return the scope of one workflow of this type; `id` defaults to a new UUIDv7.

    `emitter`: default one for the process, to HEADSTART_KAFKA (127.0.0.1:9092). `flush_s`:
    seconds. Raises `InvalidEvent` naming the field that is no identifier.
    """
    named = {
        "workflow_type": type, "tenant": tenant, "user_id": user, "workflow_id": id or new_id(),
        "agent_id": agent, "session_id": session,
    }  # fmt: skip
    fields = {name: value for name, value in named.items() if value is not None}
    if context is not None and not isinstance(context, Mapping):
        raise InvalidEvent("context", "must be an object")
    validate({"event_type": "workflow_complete", "id": new_id(), "timestamp": 0, **fields})
    if context:
        fields["context"] = dict(context)  # type: ignore[assignment]
    return Workflow(emitter or _default_emitter(), fields, flush_s)


_guard = threading.Lock()
_emitter: Emitter | None = None


def _default_emitter() -> Emitter:
    global _emitter  # noqa: PLW0603 - one for the process, made when it is first asked for
    with _guard:
        if _emitter is None:
            _emitter = Emitter(os.environ.get("HEADSTART_KAFKA", "127.0.0.1:9092"))
        return _emitter


def _after_fork() -> None:
    global _guard  # noqa: PLW0603 - the parent's may be held by a thread that is not here
    _guard = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _outcome(error: BaseException | None) -> kinds.Outcome:
    if error is None:
        return "success"
    if isinstance(error, Exception):
        return "failure"
    return "aborted"
