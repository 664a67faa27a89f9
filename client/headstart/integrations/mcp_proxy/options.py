"""The options of `headstart-mcp-proxy`."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from headstart.arguments.checks import InvalidArgument
from headstart.integrations.mcp_proxy.proxied_session import ProxyTimes
from headstart.integrations.setup import LIMIT, SpeculationSetup
from headstart.prediction.predictor import CallPredictor

_EXAMPLES: Final = """examples:
  headstart-mcp-proxy --workflow-type support --read-only search -- npx -y my-server
  headstart-mcp-proxy --workflow-type support --trust-annotations --url https://mcp.example.com/mcp
  headstart-mcp-proxy --workflow-type support --url http://127.0.0.1:8000/mcp --port 8080

Exit codes: 0 the client has ended, 1 the server has ended or cannot be started, 2 wrong options."""
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}")


class Upstream(NamedTuple):
    """The server: a command with its arguments, or a URL with headers for it."""

    command: Sequence[str]
    url: str | None
    headers: Mapping[str, str]


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options; `command` is what follows `--`. Exits with code 2 for wrong ones."""
    own, command = _split(arguments)
    parser = _parser()
    options = parser.parse_args(own)
    options.command = command
    if bool(command) == bool(options.url):
        parser.error("name one MCP server: its command after --, or --url")
    if options.port is not None and not options.url:
        parser.error("--port needs --url: a server that is a command serves one client, over stdio")
    if options.port is None and (options.session_header or options.single_client):
        parser.error("--session-header and --single-client are of --port: over stdio is one client")
    if options.session_header and options.single_client:
        parser.error("--session-header and --single-client exclude each other")
    return options


def upstream_of(options: argparse.Namespace) -> Upstream:
    """Return the server that the options name. Raises `InvalidArgument`."""
    headers = dict(_header(each) for each in options.header)
    return Upstream(options.command, options.url, headers)


def setup_of(options: argparse.Namespace, predictor: CallPredictor | None) -> SpeculationSetup:
    """Return the set-up that the options describe. Raises `InvalidArgument`.

    `predictor`: that of `--state`. Without one, HEADSTART_SHARED_LEARNING decides.
    """
    for name, given in (("HEADSTART_KAFKA", options.kafka), ("HEADSTART_REDIS", options.redis)):
        if given:
            os.environ[name] = given
    return SpeculationSetup(
        options.workflow_type,
        read_only=options.read_only,
        dangerous=options.dangerous,
        tenant=options.tenant,
        agent_id=options.agent_id,
        user_id=options.user_id,
        context=dict(_pair(each) for each in options.context),
        predictor=predictor,
        limit=0 if options.observe else LIMIT,
        log_arguments=False if options.no_arguments else None,
    )


def times_of(options: argparse.Namespace) -> ProxyTimes:
    """Return when turns and runs end. Raises `InvalidArgument`."""
    if not all(0 < each < float("inf") for each in (options.thinking_s, options.idle_s)):
        raise InvalidArgument("--thinking-s and --idle-s must be above 0 seconds")
    return ProxyTimes(thinking=options.thinking_s, idle=max(options.idle_s, options.thinking_s))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headstart-mcp-proxy",
        usage="headstart-mcp-proxy --workflow-type NAME [options] (-- COMMAND ARGS | --url URL)",
        description="Starts the probable next calls of an MCP server's tools early.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--workflow-type", required=True, help="kind of workflow that the client runs")
    add("--read-only", action="append", default=[], metavar="TOOL", help="may be called early")
    add("--dangerous", action="append", default=[], metavar="TOOL", help="is never called early")
    add("--trust-annotations", action="store_true", help="believe the server's readOnlyHint")
    add("--observe", action="store_true", help="only log; guess nothing")
    add("--no-arguments", action="store_true", help="log no arguments of calls")
    add("--state", type=Path, metavar="FILE", help="keeps what the predictor has learned")
    _add_place(parser)
    _add_context(parser)
    return parser


def _add_place(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--url", help="the server's URL (streamable HTTP), instead of a command")
    add("--header", action="append", default=[], metavar="'NAME: VALUE'",
        help="for --url; ${NAME} stands for a variable of the environment")  # fmt: skip
    add("--port", type=int, help="listen for clients over HTTP, instead of stdio")
    add("--host", default="127.0.0.1", help="with --port: the address; default 127.0.0.1")
    add("--session-header", metavar="NAME", help="with --port: the header that names a run")
    add("--single-client", action="store_true", help="with --port: all calls are of one client")
    add("--ignore", action="append", default=[], metavar="NAME",
        help="header, or key of _meta, that does not change what a tool returns")  # fmt: skip


def _add_context(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--tenant", help="of all runs")
    add("--agent-id", help="of all runs")
    add("--user-id", help="of all runs")
    add(
        "--context", action="append", default=[], metavar="NAME=VALUE", help="such as domain=retail"
    )
    add("--kafka", help="broker; default HEADSTART_KAFKA, else 127.0.0.1:9092")
    add("--redis", help="thresholds; default HEADSTART_REDIS, else redis://127.0.0.1:6379/0")
    add("--thinking-s", type=float, default=30.0, help="longest thinking that guesses wait; 30")
    add("--idle-s", type=float, default=600.0, help="time without calls that ends a run; 600")


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return what stands before and after the first `--`."""
    given = list(arguments)
    if "--" not in given:
        return given, []
    at = given.index("--")
    return given[:at], given[at + 1 :]


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise InvalidArgument(f"--header: 'NAME: VALUE', not {name[:64]!r}")
    return name.strip().lower(), _VARIABLE.sub(_of_environment, value.strip())


def _of_environment(found: re.Match[str]) -> str:
    value: Any = os.environ.get(found[1])
    if value is None:
        raise InvalidArgument(f"--header: {found[1]} is not set in the environment")
    return str(value)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidArgument(f"--context: NAME=VALUE, not {text[:64]!r}")
    return name, value
