"""Plays Claude Code's part of the control protocol by a script, as its version 2.1.332 does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from claude_agent_sdk import Transport

SESSION = "0a0b18b6-3b20-4253-b7b1-dd29d5e48e33"


class Use(NamedTuple):
    """A call that the model requests. `answers`: of the subagent that it starts."""

    tool: str
    arguments: Mapping[str, Any]
    id: str
    answers: Sequence[Any] = ()


class ApiError(NamedTuple):
    """An answer that the model's API refuses to give."""

    text: str


class PlayedClaude(Transport):
    """Answers each prompt with the next script: calls of each turn, then a text.

    An answer that is an exception breaks the stream of messages. `allowed`: what is not asked
    about. `serial`: tools that run alone. `call_ids`: requests to servers have the ids of calls.
    `call_timeout_s`: of a call of a server.
    """

    def __init__(
        self, *scripts: Sequence[Any], allowed: Sequence[str] = (), **options: Any
    ) -> None:
        self._scripts, self._allowed = list(scripts), set(allowed)
        self._serial = set(options.get("serial", ()))
        self._servers = options.get("servers", ("shop",))
        self._thinks_s, self._mode = options.get("thinks_s", 0.05), options.get("mode", "default")
        self._call_ids, self._session = (
            options.get("call_ids", True),
            options.get("session", SESSION),
        )
        self._call_timeout_s = options.get("call_timeout_s")
        self._messages: asyncio.Queue[Any] = asyncio.Queue()
        self._prompts: asyncio.Queue[str] = asyncio.Queue()
        self._hooks: dict[str, list[str]] = {}
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._numbers = count()
        self._playing: asyncio.Task[None] | None = None
        self._run: asyncio.Task[None] | None = None
        self._ended = False
        self.results: list[tuple[str, str, bool]] = []
        """What the model got of its calls: their ids, the texts, and whether they failed."""

    @property
    def works(self) -> bool:
        """Whether a prompt is being answered."""
        return self._run is not None

    async def connect(self) -> None:
        self._playing = asyncio.create_task(self._play())

    def is_ready(self) -> bool:
        return True

    async def end_input(self) -> None:
        self._ended = True
        if self._run is None and self._prompts.empty():
            self._messages.put_nowait(None)

    async def close(self) -> None:
        tasks = [task for task in (self._run, self._playing) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        while (message := await self._messages.get()) is not None:
            if isinstance(message, BaseException):
                raise message
            yield message

    async def write(self, data: str) -> None:
        message = json.loads(data)
        if message["type"] == "control_response":
            waiting = self._waiting.pop(message["response"]["request_id"], None)
            if waiting is not None and not waiting.done():
                waiting.set_result(message["response"])
        elif message["type"] == "user":
            self._prompts.put_nowait(message["message"]["content"])
        else:
            self._control(message["request_id"], message["request"])

    def _control(self, request_id: str, request: Mapping[str, Any]) -> None:
        if request["subtype"] == "initialize":
            for event, matchers in (request.get("hooks") or {}).items():
                self._hooks[event] = [each for own in matchers for each in own["hookCallbackIds"]]
        elif request["subtype"] == "interrupt" and self._run is not None:
            self._run.cancel()
        response = {"subtype": "success", "request_id": request_id, "response": {}}
        self._messages.put_nowait({"type": "control_response", "response": response})

    def _send(self, request_id: str, request: Mapping[str, Any]) -> None:
        whole = {"type": "control_request", "request_id": request_id, "request": request}
        self._messages.put_nowait(whole)

    async def _ask(self, request: Mapping[str, Any]) -> Any:
        """Make a request to the SDK. Raises `RuntimeError` for an error in the response."""
        request_id = f"cli-{next(self._numbers)}"
        waiting = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        self._send(request_id, request)
        try:
            response = await waiting
        except asyncio.CancelledError:
            self._messages.put_nowait({"type": "control_cancel_request", "request_id": request_id})
            raise
        if response["subtype"] == "error":
            raise RuntimeError(response["error"])
        return response["response"]

    async def hook(self, event: str, hook_input: Mapping[str, Any]) -> list[Any]:
        """Call all hooks of an event at once; return what they decide."""
        base = {
            "session_id": self._session, "transcript_path": "", "cwd": "/",
            "permission_mode": self._mode, "hook_event_name": event, **hook_input,
        }  # fmt: skip
        asked = [
            self._ask({
                "subtype": "hook_callback", "callback_id": each, "input": base,
                "tool_use_id": hook_input.get("tool_use_id"),
            })
            for each in self._hooks.get(event, ())
        ]  # fmt: skip
        return [each.get("hookSpecificOutput", {}) for each in await asyncio.gather(*asked)]

    async def _mcp(self, server: str, method: str, params: Any = None) -> Any:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        if not method.startswith("notifications/"):
            message["id"] = next(self._numbers)
        asked = {"subtype": "mcp_message", "server_name": server, "message": message}
        try:
            return (await self._ask(asked))["mcp_response"].get("result")
        except asyncio.CancelledError:
            if "id" in message:
                gone = {"requestId": message["id"], "reason": "AbortError: remote-cancel"}
                notification = {
                    "jsonrpc": "2.0",
                    "method": "notifications/cancelled",
                    "params": gone,
                }
                self._send(f"cli-{next(self._numbers)}", {**asked, "message": notification})
            raise

    async def _play(self) -> None:
        for server in self._servers:
            client = {"name": "claude-code", "version": "2.1.332"}
            began = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
            await self._mcp(server, "initialize", began)
            await self._mcp(server, "notifications/initialized")
            await self._mcp(server, "tools/list")
        for number, script in enumerate(self._scripts):
            prompt = await self._prompts.get()
            self._run = asyncio.create_task(self._prompted(prompt, f"p{number}", script))
            subtype = "success"
            try:
                await self._run
            except asyncio.CancelledError:
                if asyncio.current_task().cancelling():  # type: ignore[union-attr]
                    raise
                subtype = "error_during_execution"
            except Exception as error:
                self._messages.put_nowait(error)
                return
            self._run = None
            self._messages.put_nowait({
                "type": "result", "subtype": subtype, "duration_ms": 1, "duration_api_ms": 1,
                "is_error": subtype != "success", "num_turns": 1, "session_id": self._session,
            })  # fmt: skip
        if self._ended:
            self._messages.put_nowait(None)

    async def _prompted(self, prompt: str, prompt_id: str, script: Sequence[Any]) -> None:
        of_run = {"prompt_id": prompt_id}
        await self.hook("UserPromptSubmit", {**of_run, "prompt": prompt})
        await self._answers(script, of_run, "Stop")

    async def _answers(self, script: Sequence[Any], of_run: Mapping[str, Any], end: str) -> None:
        for answer in script:
            await asyncio.sleep(self._thinks_s)
            if isinstance(answer, BaseException):
                raise answer
            if isinstance(answer, ApiError):
                hook_input = {**of_run, "error": "unknown", "last_assistant_message": answer.text}
                await self.hook("StopFailure", hook_input)
                return
            if isinstance(answer, str):
                self._put_answer([{"type": "text", "text": answer}])
                hook_input = {**of_run, "stop_hook_active": False, "last_assistant_message": answer}
                await self.hook(end, hook_input)
                return
            await self._turn(answer, of_run)

    async def _turn(self, uses: Sequence[Any], of_run: Mapping[str, Any]) -> None:
        """Make the calls as they arrive; `("wait", seconds)` stands for what the model takes."""
        running: list[asyncio.Task[dict[str, Any]]] = []
        try:
            for use in uses:
                if use[0] == "wait":
                    await asyncio.sleep(use[1])
                    continue
                self._put_answer(
                    [{"type": "tool_use", "id": use.id, "name": use.tool, "input": use.arguments}]
                )
                if running and use.tool in self._serial:
                    await asyncio.gather(*running)
                running.append(asyncio.create_task(self._use(use, of_run)))
                if use.tool in self._serial:
                    await running[-1]
            done = await asyncio.gather(*running)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        await self.hook("PostToolBatch", {**of_run, "tool_calls": done})

    async def _use(self, use: Use, of_run: Mapping[str, Any]) -> dict[str, Any]:
        hook_input = {"tool_name": use.tool, "tool_input": use.arguments, "tool_use_id": use.id}
        decided = await self.hook("PreToolUse", {**of_run, **hook_input})
        arguments, refused = await self._permitted(use, decided)
        if refused is not None:
            return self._result({**hook_input, "tool_response": refused}, use, error=True)
        begun = asyncio.get_running_loop().time()
        response, error = await self._made(use, arguments, of_run)
        took_ms = int((asyncio.get_running_loop().time() - begun) * 1000)
        ended = {**hook_input, "tool_input": arguments, "duration_ms": took_ms}
        if error:
            await self.hook("PostToolUseFailure", {**of_run, **ended, "error": response})
        else:
            await self.hook("PostToolUse", {**of_run, **ended, "tool_response": response})
        return self._result({**hook_input, "tool_response": response}, use, error=error)

    async def _permitted(self, use: Use, decided: Sequence[Any]) -> tuple[Any, str | None]:
        arguments: Any = use.arguments
        for each in decided:
            arguments = each.get("updatedInput", arguments)
        decisions = {each.get("permissionDecision") for each in decided}
        if "deny" in decisions:
            return arguments, "denied by a hook"
        if "ask" not in decisions and (
            use.tool in self._allowed or "allow" in decisions or self._mode == "bypassPermissions"
        ):
            return arguments, None
        answer = await self._ask({
            "subtype": "can_use_tool", "tool_name": use.tool, "input": arguments,
            "tool_use_id": use.id, "permission_suggestions": [],
        })  # fmt: skip
        if answer["behavior"] == "deny":
            return arguments, answer["message"]
        return answer["updatedInput"], None

    async def _made(self, use: Use, arguments: Any, of_run: Mapping[str, Any]) -> tuple[Any, bool]:
        if use.answers:
            agent = {"agent_id": f"agent-{use.id}", "agent_type": arguments["subagent_type"]}
            await self.hook("SubagentStart", agent)
            await self._answers(use.answers, {**of_run, **agent}, "SubagentStop")
            return "the subagent has ended", False
        parts = use.tool.split("__")
        if len(parts) < 3:  # a tool of Claude Code
            await asyncio.sleep(0.01)
            return {"stdout": f"ran {arguments}"}, False
        params: dict[str, Any] = {"name": parts[2], "arguments": arguments, "_meta": {}}
        if self._call_ids:
            params["_meta"]["claudecode/toolUseId"] = use.id
        try:
            async with asyncio.timeout(self._call_timeout_s):
                result = await self._mcp(parts[1], "tools/call", params)
        except TimeoutError:
            return "timed out", True
        if result is None:
            return "the server failed", True
        text = "\n".join(block["text"] for block in result["content"])
        return (text, True) if result.get("isError") else (result["content"], False)

    def _result(self, hook_input: dict[str, Any], use: Use, *, error: bool) -> dict[str, Any]:
        response = hook_input["tool_response"]
        text = response[0]["text"] if isinstance(response, list) else str(response)
        self.results.append((use.id, text, error))
        block = {"type": "tool_result", "tool_use_id": use.id, "content": text, "is_error": error}
        self._messages.put_nowait({"type": "user", "message": {"role": "user", "content": [block]}})
        return hook_input

    def _put_answer(self, content: Sequence[Any]) -> None:
        message = {"role": "assistant", "model": "played", "content": content}
        self._messages.put_nowait(
            {"type": "assistant", "message": message, "session_id": self._session}
        )
