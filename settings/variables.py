"""The HEADSTART_ variables that are read, and reports of others."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from typing import Final

from settings.file import VARIABLE
from settings.secret_files import FROM_FILES
from settings.suggestions import did_you_mean

PREFIX: Final = "HEADSTART_"
_OF_KUBERNETES: Final = re.compile(
    r"(?:^|_)(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT(?:_\d+_\w+)?)$"
)
"""Variables that Kubernetes sets in pods for services whose names start with `headstart`."""
HASH_KEY: Final = "HEADSTART_HASH_KEY"
EXECUTOR: Final = {
    "HEADSTART_SPOOL": (
        "$XDG_STATE_HOME/headstart/spool",
        "where this host's executors spool events until they are sent",
    ),
    "HEADSTART_SHIPPER": ("process", "shipper of the spool: process, thread or none"),
    "HEADSTART_SCRUB": ("shipper", "where secrets are removed: shipper, emit or off"),
    "HEADSTART_COMPRESSION": ("", "compression of large frames: zstd or lz4"),
    "HEADSTART_CLIENT_ID": ("headstart", "client id of this executor, for the broker's quotas"),
    "HEADSTART_SHARED_LEARNING": (
        "0",
        "1: predictors of integrations learn together with other executors",
    ),
    "HEADSTART_LOG_ARGUMENTS": ("1", "0: runs and guesses are logged without arguments of calls"),
    HASH_KEY: (
        "",
        "secret of 16 to 64 bytes, the same in all executors of a tenant: keys the hashes that "
        "shared learning sends",
    ),
    "HEADSTART_MODE": ("act", "most permissive mode of executors: off, observe or act"),
    "HEADSTART_LOG_FORMAT": (
        "text",
        "log format of workers and shippers, a line per event: text or json",
    ),
    "HEADSTART_LOG_LEVEL": ("info", "lowest level that they log: debug, info, warning or error"),
    "HEADSTART_DEBUG": ("", "any value: a failing command prints its traceback"),
}
"""Default and meaning of variables that have no setting."""


def misspelt(settings: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each variable that is probably a misspelt setting."""
    for name, near in _unknown(settings):
        if near:
            yield f"{PREFIX}{name} is no setting{near}"


def unread(settings: Collection[str]) -> Iterator[str]:
    """Yield a note for each other variable that is not read.

    Another program may use them, so they are not errors.
    """
    for name, near in _unknown(settings):
        if not near:
            yield f"note: {PREFIX}{name} is no setting; nothing reads it"


def _unknown(settings: Collection[str]) -> Iterator[tuple[str, str]]:
    ours = {name.upper() for name in settings}
    ours |= {name.removeprefix(PREFIX) for name in (VARIABLE, *EXECUTOR, f"{HASH_KEY}_FILE")}
    ours |= {f"{name.upper()}_FILE" for name in FROM_FILES}
    for variable in sorted(os.environ):
        name = variable.removeprefix(PREFIX)
        if name != variable and name not in ours:
            near = "" if _OF_KUBERNETES.search(name) else did_you_mean(name, ours)
            yield name, near.replace("'", f"'{PREFIX}", 1)
