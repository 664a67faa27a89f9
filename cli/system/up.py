"""`headstart up`: runs the whole system on this machine until Ctrl-C."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.support.options import Json, KafkaPart, Part, StackOptions
from cli.support.output import put, show_json
from cli.support.stop_signals import Asked, echo_if_open
from cli.system.chosen_services import chosen_services, unused_addresses

if TYPE_CHECKING:
    from deploy.local import Addresses
    from deploy.local.secure.credentials import Credentials
    from deploy.system import System
    from settings import LoadedSettings

Port = Annotated[
    int, typer.Option(min=0, max=65_535, help="Port of the embedded service; 0: a free one.")
]

Secure = Annotated[
    bool,
    typer.Option(
        "--secure", help="Apache Kafka, Debian's Postgres and Redis with TLS, logins and ACLs."
    ),
]


def up(
    kafka: KafkaPart = "embedded",
    postgres: Part = "embedded",
    redis: Part = "embedded",
    kafka_port: Port = 0,
    postgres_port: Port = 0,
    redis_port: Port = 0,
    workers: Annotated[bool, typer.Option(help="Run the workers too.")] = True,
    secure: Secure = False,
    *,
    options: StackOptions,
    json: Json = False,
) -> None:
    """Start broker, Postgres, Redis and the workers, and keep them running until Ctrl-C.

    Other commands find them through the data directory. Processes that end are restarted; if a
    service ends five times within five minutes, the command exits with 1.

    The embedded broker keeps its log in memory: Ctrl-C first waits until all emitted events are
    processed (stop your executors before), and the next start begins a new log epoch; episodes,
    thresholds and learned state are kept. A second Ctrl-C does not wait.

    With --secure each process has its own login, made once: `. .headstart/secure/executor.env`
    gives an executor its variables, and operator.env commands.

    Examples: headstart up; headstart up --secure; headstart up --kafka apache
    """
    from deploy.local import StackConfig
    from deploy.system import System
    from settings import environment
    from settings.connections import local_security

    reading = options.load()
    settings = reading.settings
    parts = chosen_services(reading, {"kafka": kafka, "postgres": postgres, "redis": redis})
    _require_different(parts, (kafka_port, postgres_port, redis_port))
    if secure:
        parts["kafka"] = _secured(parts.values(), settings.spans_topic)
    if note := unused_addresses(reading, parts):
        echo_if_open(note)
    asked = Asked()
    system = System(
        StackConfig(
            data=settings.data,
            **parts,
            kafka_port=kafka_port,
            postgres_port=postgres_port,
            redis_port=redis_port,
            secure=secure,
        ),
        partitions=_partitions(reading),
        exact=reading.origins["partitions"] != "default",
        environment=environment(settings, addresses=False) | local_security(parts["kafka"]),
        workers=workers,
        echo=echo_if_open,
        spool=_spool(),
        ending=lambda: asked.at_once,
    )
    _run(system, asked, json=json)
    echo_if_open("stopped")


def _run(system: System, asked: Asked, *, json: bool) -> None:
    """Start everything, show the addresses, and supervise until the user asks to stop."""
    try:
        addresses = system.start()
        asked.started = True
        _show(asdict(addresses) | {"epoch": system.epoch and system.epoch.number}, json=json)
        _show_environments(system.stack.credentials, addresses)
        echo_if_open("running; Ctrl-C stops it")
        while not asked.once.wait(0.5):
            system.check()
    finally:
        system.stop()


def _secured(given: Iterable[str], spans_topic: str) -> str:
    """Return the broker of a secured stack. Raises `typer.BadParameter` for services elsewhere."""
    if spans_topic:
        raise typer.BadParameter("--secure runs no worker spans: unset HEADSTART_SPANS_TOPIC")
    if any(each not in ("embedded", "apache") for each in given):
        raise typer.BadParameter(
            "--secure starts all three services itself; without it, an address may name TLS and "
            "a login (docs/how-to/secure-connections.md)"
        )
    return "apache"


def _show_environments(credentials: Credentials | None, addresses: Addresses) -> None:
    if credentials is None:
        return
    files = credentials.write_environments(addresses)
    for name, of in (("executor", "executors"), ("operator", "commands")):
        echo_if_open(f"for {of}: . {shlex.quote(str(files[name]))}")


def _require_different(parts: Mapping[str, str], ports: Sequence[int]) -> None:
    """Raise `typer.BadParameter` if two services have the same port. `ports`: in their order."""
    from deploy.local.accepted import same_port

    if wrong := same_port(parts, dict(zip(parts, ports, strict=True))):
        raise typer.BadParameter(wrong)


def _show(ready: Mapping[str, Any], *, json: bool) -> None:
    from headstart.scrubbing.masking import masked

    ready = {name: masked(each) if isinstance(each, str) else each for name, each in ready.items()}
    if json:
        show_json(ready)
        return
    for name, value in ready.items():
        put(f"{name:9} {value}")


def _partitions(reading: LoadedSettings) -> int:
    """Return the partitions of new topics: the number the directory's state was learned with.

    A number that was given is returned as it is; `System` refuses it if it differs.
    """
    from deploy.partition_check import learned_partitions

    settings = reading.settings
    if reading.origins["partitions"] != "default":
        return settings.partitions
    learned = learned_partitions(settings.data)
    return learned.number if learned else settings.partitions


def _spool() -> Path | None:
    """Return this user's spool directory."""
    from headstart.spool.layout import SpoolUnavailable, default_directory

    try:
        return default_directory()
    except SpoolUnavailable:
        return None
