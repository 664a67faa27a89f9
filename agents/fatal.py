"""Ends a worker on an error after which it cannot continue."""

from __future__ import annotations

import os

import structlog

from agents.instance_name import InstanceNameTaken
from agents.join_conditions import explained
from processing.records.dlq_limits import EXIT_CODE, RefusalLimitExceeded

log = structlog.get_logger()


def exit_fatally(where: str, error: BaseException) -> None:
    """Log an error and end the process at once, without any clean-up that could write."""
    if isinstance(error, RefusalLimitExceeded):
        log.error("worker.dlq_limit_exceeded", where=where, reason=str(error))
        os._exit(EXIT_CODE)
    if isinstance(error, InstanceNameTaken):
        log.error("worker.failed", where=where, error=str(error))
        os._exit(1)
    log.error("worker.failed", where=where, error=explained(error) or repr(error), exc_info=error)
    os._exit(70)  # EX_SOFTWARE
