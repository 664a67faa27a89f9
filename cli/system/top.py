"""`headstart top`: shows the running system on one screen."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cli.support.options import HealthOptions, SettingOptions, TenantOnly

if TYPE_CHECKING:
    from cli.support.options import SettingOptions
    from console.inspection.snapshot import SystemObserver


def top(
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two updates.")] = 2.0,
    looks: Annotated[int | None, typer.Option(min=1, help="Exit after this many updates.")] = None,
    tenant: TenantOnly = None,
    *,
    options: HealthOptions,
) -> None:
    """Show health, throughput, learned thresholds and the time they saved, until Ctrl-C.

    The first line shows whether it is healthy. In a pipe, with NO_COLOR, or on a dumb terminal it
    prints one line per update.

    Examples: headstart top; headstart top --looks 1 --every 1 | tee state.txt
    """
    from cli.support.terminal import LiveView

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    view = LiveView(lambda: _connect(options, tenant), every, whole=True, stream=sys.stdout)
    view.limit = looks
    try:
        with view:
            # Python handles a signal in this thread only when it wakes.
            while not view.finished.wait(0.5):
                pass
    except KeyboardInterrupt:
        return  # the normal way to exit
    if view.failed is not None:
        raise view.failed


def _connect(options: SettingOptions, tenant: str | None) -> SystemObserver:
    from cli.support.targets import target_of
    from console.inspection.snapshot import SystemObserver

    return SystemObserver(target_of(options.read()), tenant=tenant)


def _end(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)
