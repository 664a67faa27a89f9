"""Restores models from their files and from `headstart.models`; the state of the later offset wins.

States that are later than the log are ignored: they were not learned from it.

A stale owner may have written an older state over a newer one: the marker of the partition shows
it, and the log is read again from where the older state ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import structlog
from msgspec.structs import replace

from agents.predictions.model_files import ModelFiles
from agents.thresholds.clients import Clients
from headstart.keys import key_names
from headstart.partitioner import partition_for_key
from processing.predictions.entries import ModelEntry
from processing.records.batch import RecordBatch
from topics.catalogue import DECISIONS, MODELS
from topics.epoch import Epoch
from topics.models.records import (
    MARKER_KEY,
    NewerModel,
    NotAModel,
    PartitionMarker,
    StoredModel,
    decode_marker,
    decode_model,
    first_needed,
    is_ahead,
    is_model_key,
)

log = structlog.get_logger()


@dataclass
class RestoredModels:
    """One partition: its models, where it continues in the log, and the end of its states."""

    entries: dict[bytes, ModelEntry] = field(default_factory=dict)
    begin: int = 0
    end: int = 0


class _Restoring:
    def __init__(self, files: ModelFiles, partition: int, epoch: Epoch, end: int) -> None:
        """`end`: of the partition of `headstart.decisions`."""
        self._files, self._partition, self._epoch, self._end = files, partition, epoch, end
        self._ahead: dict[bytes, tuple[int, int]] = {}
        """Versions later than the log: of files, and of the last records of keys."""
        self.found = {
            key: head for key, head in files.heads(partition).items() if self._continues(key, head)
        }
        self.last: dict[bytes, tuple[int, int]] = {}
        """The version in the last record of each key."""
        own = files.marker(partition)
        self.markers: list[PartitionMarker] = [] if own is None else [own]

    def _continues(self, key: bytes, head: StoredModel) -> bool:
        """Return whether a file is of this log; delete it if not.

        Only an embedded broker loses its log by itself: the next one goes on with what
        was learned.
        """
        if self._is_ahead(head.version):  # left where it is: the log may be the wrong one
            self._ahead[key] = head.version
            return False
        if self._is_ours(key) and (self._epoch.volatile or head.epoch >= self._epoch.number):
            return True
        self._files.delete(self._partition, key)
        return False

    def _is_ours(self, key: bytes) -> bool:
        return partition_for_key(key, self._epoch.partitions) == self._partition

    def _is_ahead(self, version: tuple[int, int]) -> bool:
        return is_ahead(version, self._epoch.number, self._end)

    def add_all(self, batch: RecordBatch) -> None:
        """Take in records of `headstart.models`."""
        for key, value in zip(batch.keys, batch.values, strict=True):
            self._add(key, value)

    def _add(self, key: bytes | None, value: bytes | None) -> None:
        if key == MARKER_KEY:
            marker = decode_marker(value)
            self.markers += [] if marker is None else [marker]
            return
        if not is_model_key(key) or not self._is_ours(key):
            log.warning("model.unreadable", partition=self._partition,
                        error=f"{key!r} is no key of a model of this partition")  # fmt: skip
            return
        try:
            found = decode_model(value)
        except NewerModel:
            raise  # to go on without it would overwrite it
        except NotAModel as error:
            log.warning("model.unreadable", partition=self._partition, error=str(error))
            return
        self.last[key] = found.version
        if self._is_ahead(found.version):
            self._ahead[key] = found.version
            return
        self._ahead.pop(key, None)
        held = self.found.get(key)
        if held is None or found.version > held.version:
            self._files.write(self._partition, key, found)
            self.found[key] = replace(found, state=b"")

    def restored(self, end: int) -> RestoredModels:
        """Return what was found, without what is later than the log."""
        entries, epoch = {}, self._epoch.number
        for key, head in self.found.items():
            # Of an earlier epoch: the state that this epoch begins with.
            offset = head.offset if head.epoch == epoch else -1
            entry = entries[key] = ModelEntry(key, self._partition, offset, head.reset)
            if head.epoch == epoch:
                entry.note_filed()
            if self.last.get(key) == (epoch, offset):
                entry.note_stored()
            else:
                entry.rewrite = True
        versions = {key: head.version for key, head in self.found.items()}
        begin = first_needed(self._markers_of_log(), versions, epoch)
        self._warn()
        return RestoredModels(entries, begin, end)

    def _markers_of_log(self) -> Iterable[PartitionMarker]:
        for marker in self.markers:
            if (marker.epoch, marker.reached) <= (self._epoch.number, self._end):
                yield marker
            else:
                log.warning("model_marker.ahead", partition=self._partition,
                            version=f"{marker.epoch}:{marker.reached}")  # fmt: skip

    def _warn(self) -> None:
        for key, version in self._ahead.items():
            tenant, workflow_type = key_names(key)
            log.warning(
                "model.ahead", tenant=tenant, workflow_type=workflow_type,
                version="{}:{}".format(*version), end=f"{self._epoch.number}:{self._end}",
                restored=key in self.found,
            )  # fmt: skip


async def restore(
    files: ModelFiles, clients: Clients, kafka: str, partitions: Iterable[int], epoch: Epoch
) -> Mapping[int, RestoredModels]:
    """Return the models of partitions; their states are in files then.

    Raises `BrokerUnreachable`, `TopicsMissing` and `NewerModel`.
    """
    state = await clients.topic_state(kafka, MODELS.name)
    end = {partition: state.end[partition] for partition in partitions}
    begin = {partition: state.begin[partition] for partition in end}
    learned_from = await clients.topic_state(kafka, DECISIONS.name)  # after the end of the states
    restoring = {
        partition: await asyncio.to_thread(
            _Restoring, files, partition, epoch, learned_from.end[partition]
        )
        for partition in end
    }
    count = 0
    async for batch in clients.read_batches(kafka, MODELS.name, begin, end):
        await asyncio.to_thread(restoring[batch.partition].add_all, batch)
        count += len(batch)
    found = {n: each.restored(end[n]) for n, each in restoring.items()}
    log.info(
        "models.restored", partitions=len(found), records=count,
        models=sum(len(each.entries) for each in found.values()),
    )  # fmt: skip
    return found
