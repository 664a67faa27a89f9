"""Whether an executor would accept what the environment says, by the client's own checks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from headstart.arguments import environment as choices
from headstart.log_lines import log_format, log_level
from headstart.spool.layout import default_directory
from headstart.thresholds.modes import mode_from_environment


def _spool() -> Path:
    directory = default_directory()
    if directory.exists() and not directory.is_dir():
        raise NotADirectoryError(f"{directory} is not a directory")
    return directory


CHECKS: Final[Mapping[str, Callable[[], object]]] = {
    "HEADSTART_SPOOL": _spool,
    "HEADSTART_SHIPPER": choices.shipper_mode,
    "HEADSTART_SCRUB": choices.scrubbing,
    "HEADSTART_COMPRESSION": choices.compression,
    "HEADSTART_CLIENT_ID": choices.client_id,
    "HEADSTART_MODE": mode_from_environment,
    "HEADSTART_LOG_FORMAT": log_format,
    "HEADSTART_LOG_LEVEL": log_level,
}
"""By variable, what reads it."""


def refused() -> Iterator[str]:
    """Yield a sentence for each variable whose value executors, workers or shippers refuse."""
    for variable, read in CHECKS.items():
        if not os.environ.get(variable):
            continue
        try:
            read()
        except (ValueError, OSError) as error:
            said = str(error)
            yield said if variable in said else f"{variable}: {said}"
