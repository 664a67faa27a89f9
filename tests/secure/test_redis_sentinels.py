"""Sentinels and their servers over TLS with client certificates, by users of least rights."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local import StackError
from headstart.connections.redis_clients import connect
from headstart.thresholds.reader import AsyncThresholds, Thresholds
from tests.cluster_reads import PATIENT_S, publish, threshold
from tests.patience import until
from tests.secure.certificates import Certificates
from tests.secure.redis_users import login, make_users
from tests.sentinels import Sentinels, running_sentinels
from tests.transports import tls_only

PATH = "workflow_type=refund"
FINER = f"{PATH}/domain=retail/user_id=u7"


@pytest.fixture
def three(certificates: Certificates, tmp_path: Path) -> Iterator[Sentinels]:
    """Three Sentinels, two of which must agree, and users of each process at both servers."""
    try:
        transport = tls_only(certificates)
    except StackError as error:
        pytest.skip(str(error))
    with running_sentinels(tmp_path, transport, count=3, quorum=2) as made:
        for port in made.servers:
            with made.server(port) as client:
                make_users(client.execute_command)
        yield made


def queries(three: Sentinels, port: int) -> int:
    """Return how many HMGET a server has answered."""
    with three.server(port) as client:
        return int(client.info("commandstats").get("cmdstat_hmget", {}).get("calls", 0))


def test_a_failover_while_one_sentinel_is_dead(three: Sentinels) -> None:
    writer, reader_url = three.url_of(login("thresholds")), three.url_of(login("executor"))
    primary, replica = three.servers
    publish(writer, threshold(PATH, 1), threshold(FINER, 1))
    with (
        connect(writer, socket_timeout=PATIENT_S) as client,
        pytest.raises(Exception, match="wait"),
    ):
        client.execute_command("WAIT", 1, 1000)
    with three.server(primary) as admin:
        until(lambda: admin.execute_command("WAIT", 1, 1000) == 1)
    given = {"workflow_type": "refund", "domain": "retail", "user_id": "u7"}
    with Thresholds(reader_url, staleness_s=0.0, timeout_s=PATIENT_S) as reader:
        before = queries(three, primary)
        assert reader.get(given).level == FINER
        assert queries(three, primary) - before == 1, "every level in one round trip"
        three.kill_sentinel()
        three.fail_over()
        publish(writer, threshold(FINER, 2))
        publish(writer, threshold(FINER, 1))
        until(lambda: reader.get(given).version == (1, 2))

    async def read() -> tuple[bool, str, tuple[int, int] | None]:
        async with AsyncThresholds(reader_url, timeout_s=PATIENT_S) as other:
            answer = await other.get(given)
            return answer.stale, answer.level, answer.version

    before = queries(three, replica)
    assert asyncio.run(read()) == (False, FINER, (1, 2))
    assert queries(three, replica) > before
    assert "#quorum 2/2" in three.logs()


def test_the_feed_of_the_new_primary_is_followed(three: Sentinels) -> None:
    writer, reader_url = three.url_of(login("thresholds")), three.url_of(login("executor"))
    with Thresholds(reader_url, staleness_s=5.0, timeout_s=PATIENT_S) as reader:
        three.fail_over()
        publish(writer, threshold(PATH, 1))
        until(lambda: reader.get(workflow_type="refund").version == (1, 1))
        until(lambda: reader.stats()["connections"])
        seen = reader.stats()["announcements"]
        publish(writer, threshold(PATH, 2))
        until(lambda: reader.stats()["announcements"] > seen)
        until(lambda: reader.get(workflow_type="refund").version == (1, 2))
