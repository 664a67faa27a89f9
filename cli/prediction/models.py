"""`headstart predict models`: what executors of a tenant have learned together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from cli.support.options import Json, KafkaRedisOptions, TenantOnly
from cli.support.output import counted, echo, require_found, show_json, show_table
from cli.support.times import now_ms
from headstart.keys import event_key

if TYPE_CHECKING:
    from sinks.redis.models import ServedModel
    from topics.models.log import FoundModel, LogEnd


def models(
    tenant: TenantOnly = None,
    *,
    options: KafkaRedisOptions,
    json: Json = False,
) -> None:
    """List the shared models: the snapshots that executors load, and the states behind them.

    version: log epoch and offset of the last record that is in the snapshot. bytes: of the snapshot
    in Redis; state: of the whole state in headstart.models as of its last writing, with its
    version where that is older than the snapshot. ahead: the version is later than the log, so no
    worker has learned it; headstart predict verify prints what to do. evicted: executors that the
    model has forgotten for others, of which it keeps 2,048.

    Example: headstart predict models --tenant acme --json
    """
    from sinks.redis.models import served_models
    from topics.models.log import read_log_end, read_models

    settings = options.read()

    async def run() -> list[dict[str, Any]]:
        served = {
            each.names: each
            for each in await served_models(settings.redis, tenant, snapshots=False)
        }
        stored = {
            (each.tenant, each.workflow_type): each
            for each in await read_models(settings.kafka, states=True)
        }
        names = sorted(served.keys() | {each for each in stored if tenant in (None, each[0])})
        end = await read_log_end(settings.kafka)  # after the versions to compare with it
        return [_fields(each, served.get(each), stored.get(each), end) for each in names]

    found = asyncio.run(run())
    if json:
        show_json({"models": found})
    else:
        columns = ("tenant", "workflow_type", "version", "bytes", "age", "state", "evicted")
        show_table(columns, [[_cells(each)[column] for column in columns] for each in found])
        echo(counted(len(found), "model"))
    require_found(len(found), "model", tenant=tenant)


def _fields(
    names: tuple[str, str], served: ServedModel | None, stored: FoundModel | None, end: LogEnd
) -> dict[str, Any]:
    now, key = now_ms(), event_key(*names)
    return {
        "tenant": names[0],
        "workflow_type": names[1],
        "epoch": served.epoch if served else None,
        "offset": served.offset if served else None,
        "ahead": served is not None and end.is_ahead(key, (served.epoch, served.offset)),
        "bytes": served.size if served else None,
        "age_s": (now - served.at) / 1000 if served and served.at else None,
        "state_epoch": stored.model.epoch if stored else None,
        "state_offset": stored.model.offset if stored else None,
        "state_ahead": stored is not None and end.is_ahead(key, stored.model.version),
        "state_bytes": stored.size if stored else None,
        "evicted_executors": evicted_executors(stored.model.state) if stored else None,
        "state_age_s": (now - stored.at) / 1000 if stored else None,
    }


def evicted_executors(state: bytes) -> int | None:
    """Return how many executors a model has forgotten; None if its state cannot be read."""
    from headstart.prediction.shared.fleet_model import FleetModel
    from headstart.prediction.state_format import UnknownState

    try:
        return FleetModel.from_bytes(state).covered.evicted if state else 0
    except UnknownState:
        return None


def _cells(model: dict[str, Any]) -> dict[str, Any]:
    version = "not served" if model["epoch"] is None else f"{model['epoch']}:{model['offset']}"
    served = model["epoch"] is not None
    evicted = model["evicted_executors"]
    return {
        **model,
        "evicted": "" if evicted is None else f"{evicted:,}",
        "version": version + _ahead(model["ahead"]),
        "bytes": f"{model['bytes']:,}" if served else "",
        "age": f"{model['age_s']:,.0f} s" if model["age_s"] is not None else "",
        "state": stored_size(model),
    }


def stored_size(model: dict[str, Any]) -> str:
    """Return the size of the stored state, with its version where it is not the snapshot's."""
    if model["state_bytes"] is None:
        return ""
    version = model["state_epoch"], model["state_offset"]
    behind = model["epoch"] is not None and version < (model["epoch"], model["offset"])
    note = _ahead(model["state_ahead"]) or (" (at {}:{})".format(*version) if behind else "")
    return f"{model['state_bytes']:,}{note}"


def _ahead(ahead: bool) -> str:
    return " (ahead)" if ahead else ""
