"""What commands and readers say of a Redis that refuses: the same for each form of it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator

import pytest

from console.inspection.doctor.databases import check_redis
from console.inspection.doctor.findings import ERROR
from deploy.local import StackError, readiness
from deploy.local.errors import ServiceRefuses
from deploy.local.service import ExternalService
from headstart.thresholds.reader import Thresholds
from tests.secure.certificates import Certificates
from tests.secure.commands import Command
from tests.secure.identities import REDIS_PASSWORD
from tests.secure.redis_forms import FORMS, RedisForm, started
from tests.secure.redis_users import login

WRONG = {
    "password": "the password or user is wrong; correct user and password in --redis URL",
    "no login": "it wants a password; correct user and password in --redis URL",
    "ca": "its certificate cannot be verified; name the file of its CA, ssl_ca_certs=FILE",
    "no such file": "ssl_ca_certs=/none.pem does not exist",
    "certificate": "certificate",  # TLS 1.3: the refusal may be overtaken by the connection's end
    "no certificate": "certificate",
    "plain": "its port is for TLS; wait, or use rediss",
}
"""What is wrong in a URL, and a part of the message."""
OPERATOR = login("operator")


@pytest.fixture(scope="module", params=FORMS)
def redis_form(
    request: pytest.FixtureRequest,
    certificates: Certificates,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RedisForm]:
    try:
        made = started(request.param, certificates, tmp_path_factory.mktemp(request.param))
    except StackError as error:
        pytest.skip(str(error))
    yield made
    made.stop()


def spoilt(url: str, wrong: str, certificates: Certificates) -> str:
    """Return the URL with something wrong in it."""
    stranger, intruder = certificates.pem("stranger"), certificates.pem("intruder")
    files = f"ssl_certfile={intruder}&ssl_keyfile={certificates.key('intruder')}"
    pattern, other = {
        "password": (REDIS_PASSWORD, "canary-wrong"),
        "no login": (rf"//[^@]*{REDIS_PASSWORD}@", "//"),
        "ca": (r"ssl_ca_certs=[^&]*", f"ssl_ca_certs={stranger}"),
        "no such file": (r"ssl_ca_certs=[^&]*", "ssl_ca_certs=/none.pem"),
        "certificate": (r"ssl_certfile=[^&]*&ssl_keyfile=[^&]*", files),
        "no certificate": (r"&ssl_certfile=[^&]*&ssl_keyfile=[^&]*", ""),
        "plain": (r"^rediss(.*?)\?ssl_.*?(&sentinel_.*)?$", r"redis\1?socket_timeout=5\2"),
    }[wrong]
    found = re.sub(pattern, other, url)
    assert found != url
    return found


@pytest.mark.parametrize("wrong", WRONG)
def test_one_line_and_the_exit_code(
    redis_form: RedisForm, certificates: Certificates, command: Command, wrong: str
) -> None:
    url = spoilt(redis_form.url(OPERATOR), wrong, certificates)
    code, line = command({"HEADSTART_REDIS": url}, "thresholds", "list")
    assert line.startswith("error: Redis at ")
    assert WRONG[wrong] in line
    assert "--redis URL or HEADSTART_REDIS" in line
    assert "canary" not in line
    assert code == 77
    found, _clock = asyncio.run(check_redis(url, time.time))
    [finding] = [each for each in found if each.level == ERROR]
    assert finding.remedy in line or "certificate" in wrong
    with pytest.raises(ServiceRefuses, match=re.escape(WRONG[wrong].partition(";")[0])):
        ExternalService("Redis", url, readiness.redis).ready()


@pytest.mark.parametrize("wrong", WRONG)
def test_a_reader_answers_with_its_default(
    redis_form: RedisForm, certificates: Certificates, wrong: str
) -> None:
    url = spoilt(redis_form.url(login("executor")), wrong, certificates)
    with Thresholds(url, timeout_s=2.0) as reader:
        answer = reader.get(workflow_type="refund")
        assert (answer.stale, answer.version) == (True, None)
        assert reader.mode("acme") == "observe"


def test_a_missing_right(redis_form: RedisForm, command: Command) -> None:
    url = redis_form.url(login("executor"))
    code, line = command({"HEADSTART_REDIS": url}, "thresholds", "list")
    assert "its ACL refuses the user a command, key or channel; add what is missing" in line
    assert code == 77


@pytest.mark.parametrize("redis_form", ["sentinels"], indirect=True)
@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        (r"(sentinel_password)=[^&]*", "the password or user is wrong"),
        (r"&sentinel_(username|password)=[^&]*", "it wants a password"),
    ],
)
def test_the_login_at_sentinels_is_another(
    redis_form: RedisForm, command: Command, pattern: str, says: str
) -> None:
    url = re.sub(pattern, r"\1=canary" if says.startswith("the") else "", redis_form.url(OPERATOR))
    code, line = command({"HEADSTART_REDIS": url}, "thresholds", "list")
    assert re.search(rf"the Sentinel 127\.0\.0\.1:\d+: {says}; correct sentinel_username", line)
    assert "canary" not in line
    assert code == 77
