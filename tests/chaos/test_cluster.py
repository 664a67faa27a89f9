"""The pure parts of the fault rounds on several brokers, and the cut that goes one way."""

from __future__ import annotations

import socket

import pytest

from tests.chaos.__main__ import main
from tests.chaos.chaos import Report, failures
from tests.chaos.checker import Checked
from tests.chaos.cluster import leader, properties
from tests.chaos.echo_server import proxied_echo
from tests.chaos.proxy import HOST


def test_the_newest_epoch_names_the_leader_of_the_quorum() -> None:
    states = [
        {"leaderId": 1, "leaderEpoch": 4}, {"leaderId": 3, "leaderEpoch": 5},
        {"leaderId": -1, "leaderEpoch": 6},
    ]  # fmt: skip
    assert leader(states) == 3


def test_a_brokers_properties_name_all_voters() -> None:
    lines = properties(2, 9092, {1: 11, 2: 12, 3: 13}).splitlines()
    assert "node.id=2" in lines
    assert "controller.quorum.voters=1@127.0.0.1:11,2@127.0.0.1:12,3@127.0.0.1:13" in lines
    assert "advertised.listeners=PLAINTEXT://127.0.0.1:9092" in lines
    assert "min.insync.replicas=2" in lines


def test_workers_that_ended_by_themselves_are_failures() -> None:
    ended = "worker thresholds ended with exit code 70: NodeNotReadyError; its spare takes over"
    stuck = "worker history is stuck: it has not reported for 30 s; ending it"
    asked = "worker thresholds ended with exit code 0; its spare (pid 7) takes over"
    killed = "worker episodes was ended by SIGKILL; starting it again in 0.5 s"
    assert failures([asked, ended, killed, stuck]) == [ended, stuck]


def test_the_last_line_of_a_cluster() -> None:
    report = Report(brokers=3, held_per_s=2_000, seconds=10.0)
    report.rounds += [Checked(90, 100, 5, 1, 2, 3), Checked(90, 100, 5, 0, 0, 0)]
    report.recoveries["kill broker 1"] += [6.0, 8.0]
    report.recoveries["pause a broker"] += [60.0]  # not dead: it counts for nothing here
    found = report.as_json()
    figures = {"brokers": 3, "rounds": 2, "events": 200, "events_per_s": 20, "held_per_s": 2_000}
    wrong = {"lost": 1, "double": 2, "differing": 3, "recovery_p95_s": 7.9}
    assert found.items() >= (figures | wrong).items()


def test_goals_of_a_cluster_are_judged() -> None:
    report = Report(brokers=3, held_per_s=2_000, seconds=10.0)
    report.rounds.append(Checked(10_000, 10_000, 0, 0, 0, 0))
    report.recoveries["kill broker 1"] += [6.0, 11.0]
    assert report.as_json()["missed"] == []
    report.seconds = 10.1
    report.recoveries["kill the controller"] += [11.1, 11.1]
    assert report.as_json()["missed"] == ["events_per_s", "recovery_p95_s"]


def test_faults_of_a_cluster_need_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["chaos", "--fault", "kill broker 1"])
    with pytest.raises(SystemExit, match="2"):
        main()


def test_requests_arrive_whose_answers_do_not() -> None:
    with (
        proxied_echo() as proxy,
        socket.create_connection((HOST, proxy.port), timeout=60) as client,
    ):
        with proxy.unanswered():
            client.sendall(b"hello")
            client.settimeout(0.2)
            with pytest.raises(TimeoutError):
                client.recv(5)
        client.settimeout(5)
        assert client.recv(5) == b"hello"
