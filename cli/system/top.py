"""`headstart top`: the running system on one screen."""

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
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2.0,
    looks: Annotated[int | None, typer.Option(min=1, help="End after so many looks.")] = None,
    tenant: TenantOnly = None,
    *,
    options: HealthOptions,
) -> None:
    """Show how the system is, what flows, what is learned and what it is worth, until Ctrl-C.

    Whether it is healthy stands at the top. In a pipe, with NO_COLOR, or on a dumb terminal: a
    line per look.

    Examples: headstart top; headstart top --looks 1 --every 1 | tee state.txt
    """
    from cli.support.terminal import LiveView

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    view = LiveView(lambda: _looking(options, tenant), every, whole=True, stream=sys.stdout)
    view.limit = looks
    try:
        with view:
            # A signal that another thread was given is noticed only when this one wakes.
            while not view.finished.wait(0.5):
                pass
    except KeyboardInterrupt:
        return  # that is how one leaves
    if view.failed is not None:
        raise view.failed


def _looking(options: SettingOptions, tenant: str | None) -> SystemObserver:
    from cli.support.targets import target_of
    from console.inspection.snapshot import SystemObserver

    return SystemObserver(target_of(options.read()), tenant=tenant)


def _end(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)
