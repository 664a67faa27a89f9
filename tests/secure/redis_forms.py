"""Redis as one server, behind Sentinels, or as a cluster: all over TLS, with the same users."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from tests.clusters import Cluster
from tests.secure.certificates import Certificates
from tests.secure.redis_users import make_users
from tests.sentinels import Sentinels
from tests.transports import Transport, tls_only

FORMS: Final = ("server", "sentinels", "cluster")


class RedisForm(NamedTuple):
    """One form. `url`: of a login, `USER:PASSWORD`."""

    url: Callable[[str], str]
    stop: Callable[[], None]


def started(form: str, certificates: Certificates, home: Path) -> RedisForm:
    """Start servers of a form. Raises `StackError` without a server that is built with TLS."""
    transport = tls_only(certificates)
    if form == "cluster":
        return _cluster(Cluster(home, transport))
    return _sentinels(Sentinels(home, transport, count=3, quorum=2), transport, form)


def _cluster(made: Cluster) -> RedisForm:
    try:
        made.start()
        make_users(*(node.run for node in made.nodes))
    except BaseException:
        made.stop()
        raise
    return RedisForm(made.url_of, made.stop)


def _sentinels(made: Sentinels, transport: Transport, form: str) -> RedisForm:
    def url_of_server(login: str) -> str:
        return f"rediss://{login}@127.0.0.1:{made.servers[0]}/0{transport.query()}"

    try:
        made.start()
        for port in made.servers:
            with made.server(port) as client:
                make_users(client.execute_command)
    except BaseException:
        made.stop()
        raise
    return RedisForm(url_of_server if form == "server" else made.url_of, made.stop)
