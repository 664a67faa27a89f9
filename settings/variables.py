"""The HEADSTART_ variables that are ours, and those that only look like it."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from typing import Final

from settings.file import VARIABLE
from settings.suggestions import did_you_mean

PREFIX: Final = "HEADSTART_"
_OF_KUBERNETES: Final = re.compile(
    r"(?:^|_)(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT(?:_\d+_\w+)?)$"
)
"""What every pod finds of services whose names begin with `headstart`."""
EXECUTOR: Final = {
    "HEADSTART_SPOOL": (
        "$XDG_STATE_HOME/headstart/spool",
        "where this host's executors keep events until they are sent",
    ),
    "HEADSTART_SHIPPER": ("process", "who sends them: process, thread or none"),
    "HEADSTART_SCRUB": ("shipper", "where secrets are taken out: shipper, emit or off"),
    "HEADSTART_COMPRESSION": ("", "of large frames: zstd or lz4"),
    "HEADSTART_CLIENT_ID": ("headstart", "who the broker's quotas take this executor for"),
    "HEADSTART_MODE": ("act", "how far executors go at the most: off, observe or act"),
    "HEADSTART_LOG_FORMAT": ("text", "how workers and shippers log, a line an event: text or json"),
    "HEADSTART_LOG_LEVEL": ("info", "from which level on they log: debug, info, warning or error"),
    "HEADSTART_DEBUG": ("", "anything: a failing command shows its traceback"),
}
"""What executors and the command line read from the environment alone: default and meaning."""


def misspelt(settings: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each variable whose name is nearly that of one of ours."""
    for name, near in _unknown(settings):
        if near:
            yield f"{PREFIX}{name} is no setting{near}"


def unread(settings: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each other variable that nothing of ours reads.

    They may be there by right, so they are no errors.
    """
    for name, near in _unknown(settings):
        if not near:
            yield f"note: {PREFIX}{name} is no setting; nothing reads it"


def _unknown(settings: Collection[str]) -> Iterator[tuple[str, str]]:
    ours = {name.upper() for name in settings}
    ours |= {name.removeprefix(PREFIX) for name in (VARIABLE, *EXECUTOR)}
    for variable in sorted(os.environ):
        name = variable.removeprefix(PREFIX)
        if name != variable and name not in ours:
            near = "" if _OF_KUBERNETES.search(name) else did_you_mean(name, ours)
            yield name, near.replace("'", f"'{PREFIX}", 1)
