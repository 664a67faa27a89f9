"""The sink of `headstart.thresholds`: stores every value; the caller omits tombstones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from sinks.postgres.batch_writer import BatchWriter
from sinks.postgres.copy_format import encode_columns
from sinks.postgres.statements import load_statements
from topics.catalogue import HISTORY_GROUP
from topics.schema.json_schema import PublishedThreshold

_decode = msgspec.json.Decoder(PublishedThreshold).decode


def encode_thresholds(raws: Sequence[bytes], /) -> list[bytes]:
    """Return thresholds as lines of COPY text; see `encode_threshold`."""
    return [encode_threshold(raw) for raw in raws]


def encode_threshold(raw: bytes, /) -> bytes:
    """Return a threshold's JSON as one line of COPY text. Raises `ValueError`."""
    try:
        threshold = _decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not a threshold: {error}") from error
    return b"%b\n" % encode_columns(
        (
            threshold.tenant,
            threshold.workflow_type,
            threshold.path,
            str(threshold.epoch),
            str(threshold.offset),
            str(threshold.speculate),
            str(threshold.suggest),
            str(threshold.outcomes),
            threshold.learner,
            str(threshold.at),
        )
    )


class HistorySink(BatchWriter):
    """Stores every version of each context's thresholds in `threshold_history`, once."""

    consumer: ClassVar = HISTORY_GROUP
    sql: ClassVar = load_statements("history")
    encode = staticmethod(encode_thresholds)
