"""Where commands to a Redis Cluster are sent, and which node a response is from. No I/O."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import AskError, ClusterDownError, MovedError, TimeoutError

from headstart.connections.redis_slots import Address, Command, CommandExchange, SlotMap

GIVEN, ONE, TWO, THREE = ("given", 1), ("one", 1), ("two", 2), ("three", 3)
LOW, HIGH = ("GET", "b"), ("GET", "a")
"""Commands whose keys are in slots 3300 and 15495."""


def made(*slots: list[Any]) -> SlotMap:
    """Return a map in which, unless `slots` says otherwise, two nodes have half of the slots."""
    known = SlotMap([GIVEN])
    known.learn(slots or ([0, 8191, list(ONE)], [8192, 16383, list(TWO)]), GIVEN)
    return known


def sent(
    slots: SlotMap, answers: dict[tuple[Address, Command], Any]
) -> tuple[list[Any], list[Any]]:
    """Exchange both commands; return the answers, and what was sent in each round."""
    exchange, rounds = CommandExchange(slots, [LOW, HIGH]), []
    for requests in exchange.rounds():
        rounds.append([(each.address, list(each.commands)) for each in requests])
        for each in requests:
            exchange.put(each, [answers.get((each.address, word), b"OK") for word in each.commands])
    return exchange.answers, [each for each in rounds if each]


def test_a_node_that_knows_no_host_means_the_one_that_was_asked() -> None:
    slots = SlotMap([("given", 1)])
    slots.learn([[0, 16383, [b"", 7, b"id"], [None, 8, b"id"]]], ("given", 1))
    assert slots.master("any") == ("given", 7)
    assert slots.nodes == [("given", 1), ("given", 7), ("given", 8)]
    slots.failed(("given", 1))
    assert slots.nodes[-1] == ("given", 1)
    assert not slots.known


def test_each_command_goes_to_the_master_of_its_key() -> None:
    answers, rounds = sent(made(), {(ONE, LOW): 1, (TWO, HIGH): 2})
    assert answers == [1, 2]
    assert rounds == [[(ONE, [LOW]), (TWO, [HIGH])]]


def test_commands_to_one_master_are_sent_together() -> None:
    answers, rounds = sent(made([0, 16383, list(ONE)]), {(ONE, LOW): 1, (ONE, HIGH): 2})
    assert answers == [1, 2]
    assert rounds == [[(ONE, [LOW, HIGH])]]


def test_a_slot_that_has_moved_is_remembered() -> None:
    slots, moved = made(), MovedError("15495 three:3")
    answers, rounds = sent(slots, {(TWO, HIGH): moved, (THREE, HIGH): 2})
    assert answers == [b"OK", 2]
    assert rounds[1:] == [[(THREE, [HIGH])]]
    assert slots.master("a") == THREE
    assert slots.known


def test_a_slot_that_is_being_moved_is_asked_for_once() -> None:
    slots, asks = made(), AskError("15495 three:3")
    answers, rounds = sent(slots, {(TWO, HIGH): asks, (THREE, HIGH): 2})
    assert answers == [b"OK", 2]
    assert rounds[1:] == [[(THREE, [("ASKING",), HIGH])]]
    assert slots.master("a") == TWO


def test_redirections_are_followed_twice() -> None:
    there, back = MovedError("15495 three:3"), MovedError("15495 two:2")
    answers, rounds = sent(made(), {(TWO, HIGH): there, (THREE, HIGH): back})
    assert answers == [b"OK", there]
    assert len(rounds) == 3


@pytest.mark.parametrize("error", [TimeoutError(), ClusterDownError("no slots"), OSError()])
def test_after_a_node_failed_others_are_asked_for_the_masters(error: Exception) -> None:
    slots = made()
    assert slots.nodes == [GIVEN, ONE, TWO]
    answers, _ = sent(slots, {(ONE, LOW): error})
    assert answers == [error, b"OK"]
    assert not slots.known
    assert slots.nodes == [GIVEN, TWO, ONE]


def test_a_slot_without_a_master() -> None:
    slots = made([0, 8191, list(ONE)])
    answers, rounds = sent(slots, {})
    assert answers[0] == b"OK"
    assert isinstance(answers[1], ClusterDownError)
    assert rounds == [[(ONE, [LOW])]]
    assert not slots.known


def test_what_a_node_says_of_the_masters() -> None:
    slots, error = SlotMap([GIVEN, ONE]), TimeoutError()
    assert slots.take(error, GIVEN) is error
    assert slots.nodes == [ONE, GIVEN]
    assert isinstance(slots.take([], ONE), ClusterDownError)
    assert slots.take([[0, 16383, list(TWO)]], ONE) is None
    assert slots.known
