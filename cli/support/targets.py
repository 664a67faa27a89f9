"""What the commands that look at a running system look at, from the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from console.inspection.target import InspectionTarget
    from settings import LoadedSettings, Settings
    from topics.epoch import Epoch


async def require_own_log(reading: LoadedSettings, epoch: Epoch | None = None) -> None:
    """Raise `StackError` where the log has other partitions than the data directory has learned.

    Not where --kafka names the log: it may be another system's than the directory. `epoch`: the
    log's, read where it is left out; raises what that raises.
    """
    from deploy.partition_check import require_log_partitions
    from topics.epoch import read_epoch

    if reading.origins["kafka"] == "flag":
        return
    settings = reading.settings
    epoch = epoch or await read_epoch(settings.kafka)
    require_log_partitions(settings.data, settings.kafka, epoch.partitions)


def target_of(settings: Settings) -> InspectionTarget:
    """Return the system that the settings name."""
    from console.inspection.target import InspectionTarget

    return InspectionTarget(
        settings.kafka,
        settings.postgres,
        settings.redis,
        settings.data,
        settings.health,
    )
