"""The proxy of many clients over HTTP: each request passes, and calls of tools are observed."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from headstart.integrations.mcp_proxy.cancellations import CANCELLED
from headstart.integrations.mcp_proxy.http_guesses import HttpGuesses
from headstart.integrations.mcp_proxy.http_identity import (
    SESSION_ID,
    principal,
    run_key,
    steady_headers,
    user_of,
)
from headstart.integrations.mcp_proxy.http_relay import HttpRelay, error_response, unless_gone
from headstart.integrations.mcp_proxy.known_tools import KnownTools
from headstart.integrations.mcp_proxy.observed_call import ObservedCall
from headstart.integrations.mcp_proxy.proxied_session import Origin, ProxiedSession, ProxyTimes
from headstart.integrations.mcp_proxy.tool_calls import (
    CALL,
    LIST,
    as_json,
    steady_meta,
    tool_request,
)
from headstart.integrations.setup import SpeculationSetup
from headstart.speculation.guessed_call import GuessFailed

MOST: Final = 10_000
"""Most runs, and most listings of tools; the oldest are closed."""
Key = tuple[bytes, str]

_LOG: Final = logging.getLogger(__name__)


class HttpProxy:
    """Answers the requests of clients.

    `trust_annotations`: as for `KnownTools`. `session_header`, `single_client`: as for `run_key`.
    `ignored`: headers, and keys of `_meta`, that do not change what a call returns.
    """

    def __init__(
        self,
        setup: SpeculationSetup,
        relay: HttpRelay,
        guesses: HttpGuesses,
        times: ProxyTimes = ProxyTimes(),  # noqa: B008 - immutable
        *,
        trust_annotations: bool = False,
        session_header: str | None = None,
        single_client: bool = False,
        ignored: Collection[str] = (),
    ) -> None:
        self._setup, self._relay, self._guesses, self._times = setup, relay, guesses, times
        self._trusted, self._ignored = trust_annotations, ignored
        self._key = partial(run_key, session_header=session_header, single_client=single_client)
        self._tools: OrderedDict[bytes, KnownTools] = OrderedDict()
        self._sessions: OrderedDict[Key, ProxiedSession] = OrderedDict()
        self._calls: dict[tuple[Key, object], tuple[ObservedCall, asyncio.Task[Any] | None]] = {}
        self._warned = False

    async def answer(self, request: Request) -> Response:
        """Answer a request of a client."""
        body = await request.body()
        message = _message_of(body) if request.method == "POST" else {}
        method, request_id = message.get("method"), message.get("id")
        tools = self._tools_of(principal(request.headers))
        if method == CALL:
            return await self._call(request, body, message, tools)
        if method == CANCELLED and self._cancelled(request, message):
            return Response(status_code=202)

        def read(answer: Mapping[str, Any]) -> None:
            self._noticed(tools, answer)
            result = answer.get("result")
            if method == LIST and answer.get("id") == request_id and isinstance(result, Mapping):
                tools.listed(message.get("params"), result)

        def ended(status: int | None, whole: bool) -> None:  # noqa: ARG001 - as it is called
            if request.method == "DELETE" and status is not None and status < 300:
                self._end_session(request)

        return await self._relay.passed(request, body, request_id, read, ended)

    def close(self) -> None:
        """End all runs."""
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()

    async def _call(
        self, request: Request, body: bytes, message: Mapping[str, Any], tools: KnownTools
    ) -> Response:
        asked, request_id = tool_request(message.get("params")), message.get("id")
        key = None if asked is None else self._key(request.headers, asked.meta)
        if asked is None or key is None:
            self._warn_once(asked is not None)
            return await self._relay.passed(request, body, request_id)
        session = self._session_of(key, tools)
        headers = steady_headers(request.headers, self._ignored)
        call = session.requested(asked, Origin(steady_meta(asked.meta, self._ignored), headers))
        if call is None:
            return await self._relay.passed(request, body, request_id)
        place = key, request_id
        if call.match is not None:
            answer = await self._guessed(request, session, call, place)
            if answer is not None:
                return answer
        return await self._made(request, body, session, call, place, tools)

    async def _guessed(
        self, request: Request, session: ProxiedSession, call: ObservedCall, place: Any
    ) -> Response | None:
        """Return the answer by a guess; None if the call is to be made."""
        assert call.match is not None
        waiting = asyncio.ensure_future(call.match.result())
        self._calls[place] = call, waiting
        try:
            result = await unless_gone(request.receive, waiting)
        except GuessFailed as failed:
            _LOG.debug("the call is made: %s", failed)
            return None
        except asyncio.CancelledError:
            session.cancelled(call)
            if waiting.cancelled() and not _is_cancelled():
                return error_response(place[1], 200, "the client has cancelled the call")
            raise
        except BaseException:
            session.cancelled(call)
            raise
        finally:
            self._calls.pop(place, None)
        session.finished(call, result)
        body = {"jsonrpc": "2.0", "id": place[1], "result": result}
        return Response(_dumped(body), media_type="application/json")

    async def _made(
        self,
        request: Request,
        body: bytes,
        session: ProxiedSession,
        call: ObservedCall,
        place: Any,
        tools: KnownTools,
    ) -> Response:
        self._calls[place] = call, None

        def read(answer: Mapping[str, Any]) -> None:
            self._noticed(tools, answer)
            result, error = answer.get("result"), answer.get("error")
            if "method" in answer or answer.get("id") != place[1]:
                return
            if isinstance(result, Mapping):
                session.finished(call, result)
            elif isinstance(error, Mapping):
                session.finished(call, None, str(error.get("message"))[:1_000])

        def ended(status: int | None, whole: bool) -> None:
            self._calls.pop(place, None)
            if status is None or not whole:
                session.cancelled(call)
            elif status < 400:  # the result was too large to be read
                session.finished(call, {})
            else:
                session.finished(call, None, f"HTTP status {status}")

        return await self._relay.passed(request, body, place[1], read, ended)

    def _cancelled(self, request: Request, message: Mapping[str, Any]) -> bool:
        """Handle a cancellation; return whether it was of a call that a guess is to answer."""
        params = message.get("params")
        params = params if isinstance(params, Mapping) else {}
        key, request_id = self._key(request.headers, {}), params.get("requestId")
        if key is None or not isinstance(request_id, str | int):
            return False
        call, waiting = self._calls.get((key, request_id), (None, None))
        if waiting is not None:
            waiting.cancel()
        elif call is not None and key in self._sessions:
            self._sessions[key].cancelled(call)
        return waiting is not None

    def _noticed(self, tools: KnownTools, message: Mapping[str, Any]) -> None:
        if message.get("method") == "notifications/tools/list_changed":
            tools.changed()
            for session in self._sessions.values():
                session.distrust()

    def _tools_of(self, credentials: bytes) -> KnownTools:
        tools = self._tools.pop(credentials, None) or KnownTools(trust_annotations=self._trusted)
        self._tools[credentials] = tools
        if len(self._tools) > MOST:
            self._tools.popitem(last=False)
        return tools

    def _session_of(self, key: Key, tools: KnownTools) -> ProxiedSession:
        session = self._sessions.pop(key, None)
        if session is None:
            guess = partial(self._guesses.make, tools)

            def ended() -> None:
                self._sessions.pop(key, None)

            user_id = user_of(key[0], self._setup.context.get("user_id"))
            predictor = partial(self._setup.run_predictor, {"user_id": user_id})
            session = ProxiedSession(self._setup, tools, guess, self._times, ended, predictor)
        self._sessions[key] = session
        if len(self._sessions) > MOST:
            self._sessions.popitem(last=False)[1].close()
        return session

    def _end_session(self, request: Request) -> None:
        if SESSION_ID in request.headers:
            key = self._key(request.headers, {})
            session = None if key is None else self._sessions.pop(key, None)
            if session is not None:
                session.close()

    def _warn_once(self, well_formed: bool) -> None:
        if well_formed and not self._warned:
            self._warned = True
            _LOG.warning(
                "calls without a session id, a _meta.traceparent, or the header that "
                "--session-header names pass without guesses, and are not logged: which run they "
                "are of is not known"
            )


def _message_of(body: bytes) -> Mapping[str, Any]:
    """Return the message of a request; empty if it is none, which the server will refuse."""
    try:
        message = as_json(body)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, Mapping) else {}


def _dumped(body: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(body)
    except TypeError:  # integers of more than 64 bits
        return json.dumps(body).encode()


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
