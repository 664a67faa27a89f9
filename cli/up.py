"""`headstart up`: the whole system on this machine, until Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from dataclasses import asdict
from typing import Annotated

import typer

from cli.options import Data, Json, Learner, Part, Partitions
from cli.output import say, show_json

Port = Annotated[int, typer.Option(help="Port of the embedded one; 0: a free one.")]


def up(
    data: Data = None,
    kafka: Part = "embedded",
    postgres: Part = "embedded",
    redis: Part = "embedded",
    kafka_port: Port = 0,
    postgres_port: Port = 0,
    redis_port: Port = 0,
    partitions: Partitions = None,
    learner: Learner = None,
    workers: Annotated[bool, typer.Option(help="Run the workers too.")] = True,
    json: Json = False,
) -> None:
    """Start broker, Postgres, Redis and the workers, and keep them running until Ctrl-C.

    Other commands find them through the data directory. What dies is started again; a service that
    ends five times within five minutes ends the command, with exit code 1.

    The embedded broker holds its log in memory: at Ctrl-C everything emitted is taken in first
    (stop your executors before), and at the next start a new log epoch begins; episodes, thresholds
    and learning go on. A second Ctrl-C does not wait for that.

    Examples: headstart up; headstart up --kafka broker:9092 --postgres "$DSN"
    """
    from deploy.local import StackConfig
    from deploy.system import System
    from headstart.directory import SpoolUnavailable, default_directory
    from settings import environment, read_settings

    settings = read_settings(data=data, partitions=partitions, learner=learner)
    try:
        spool = default_directory()
    except SpoolUnavailable:
        spool = None
    asked = Asked()
    system = System(
        StackConfig(
            data=settings.data,
            kafka=kafka,
            postgres=postgres,
            redis=redis,
            kafka_port=kafka_port,
            postgres_port=postgres_port,
            redis_port=redis_port,
        ),
        partitions=settings.partitions,
        environment=environment(settings, addresses=False),
        workers=workers,
        say=_say_if_heard,
        spool=spool,
        ending=lambda: asked.at_once,
    )
    try:
        addresses = system.start()
        asked.started = True
        ready = asdict(addresses) | {"epoch": system.epoch.number if system.epoch else None}
        if json:
            show_json(ready)
        else:
            for name, value in ready.items():
                print(f"{name:9} {value}", flush=True)
        say("running; Ctrl-C stops it")
        while not asked.once.wait(0.5):
            system.check()
    finally:
        system.stop()
    _say_if_heard("stopped")


class Asked:
    """Whether somebody asked to end, by Ctrl-C, SIGTERM or the end of the terminal (SIGHUP).

    Before everything is `started` being asked raises `KeyboardInterrupt`, once.
    """

    def __init__(self) -> None:
        self.once = threading.Event()
        self.at_once = self.started = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._ask)

    def _ask(self, number: int, _frame: object) -> None:
        if number == signal.SIGHUP:
            _leave_terminal()
        if self.once.is_set():
            self.at_once = True
            return
        self.once.set()
        if not self.started:
            raise KeyboardInterrupt


def _leave_terminal() -> None:
    """Write to nothing from now on: a terminal that is gone fails every write."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            if stream.isatty():
                os.dup2(nothing, stream.fileno())
    os.close(nothing)


def _say_if_heard(line: str) -> None:
    """Say a line; where stderr is gone, ending well matters more."""
    with contextlib.suppress(OSError):
        say(line)
