"""Checks executors' environment variables with the client's own checks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from headstart.arguments import environment
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
    "HEADSTART_SHIPPER": environment.shipper_mode,
    "HEADSTART_SCRUB": environment.scrubbing,
    "HEADSTART_COMPRESSION": environment.compression,
    "HEADSTART_CLIENT_ID": environment.client_id,
    "HEADSTART_SHARED_LEARNING": environment.shared_learning,
    "HEADSTART_LOG_ARGUMENTS": environment.log_arguments,
    "HEADSTART_HASH_KEY": environment.hash_key,
    "HEADSTART_MODE": mode_from_environment,
    "HEADSTART_LOG_FORMAT": log_format,
    "HEADSTART_LOG_LEVEL": log_level,
}
"""The function that reads each variable."""


def refused() -> Iterator[str]:
    """Yield a sentence for each variable whose value executors, workers or shippers refuse."""
    for variable, read in CHECKS.items():
        if not os.environ.get(variable):
            continue
        try:
            read()
        except (ValueError, OSError) as error:
            message = str(error)
            yield message if variable in message else f"{variable}: {message}"
