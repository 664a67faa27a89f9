"""Builds the inspection target of a command from the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from console.inspection.target import InspectionTarget
    from settings import LoadedSettings, Settings
    from topics.epoch import Epoch


async def require_own_log(reading: LoadedSettings, epoch: Epoch | None = None) -> None:
    """Raise `StackError` if the log's partitions differ from those the data directory learned with.

    Does not check a log given by --kafka, which may belong to another system. `epoch`: the log's;
    read if not given, with the errors of `read_epoch`.
    """
    from deploy.partition_check import require_log_partitions
    from topics.epoch import read_epoch

    if reading.origins["kafka"] == "flag":
        return
    settings = reading.settings
    epoch = epoch or await read_epoch(settings.kafka)
    require_log_partitions(settings.data, settings.kafka, epoch.partitions)


def target_of(settings: Settings) -> InspectionTarget:
    """Return the system at the addresses of the settings."""
    from console.inspection.target import InspectionTarget

    return InspectionTarget(
        settings.kafka,
        settings.postgres,
        settings.redis,
        settings.data,
        settings.health,
        settings.spans_topic,
        settings.memory,
    )
