"""An executor that learns with others: snapshots, local learning on top, faults, privacy."""

from __future__ import annotations

import json
import random
import re
import zlib
from collections import defaultdict
from collections.abc import Mapping
from threading import Thread
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.prediction.interface import PredictedCall, ToolCall
from headstart.prediction.predictor import CallPredictor
from headstart.prediction.shared.decision_events import hash_text, value_event
from headstart.prediction.shared.fleet_model import FleetModel
from headstart.prediction.shared.invalid_decision import InvalidDecision
from headstart.prediction.shared.own_decisions import OwnDecision
from headstart.prediction.shared.record_limits import LARGEST_RECORD
from headstart.prediction.shared.shared_predictor import SharedCallPredictor
from headstart.prediction.shared.snapshot import read_snapshot
from headstart.scrubbing.scrubber import Scrubber, Scrubbing
from tests.client.prediction.fleet_events import Fleet
from tests.client.prediction.synthetic_runs import Score, play, support_runs


def repeated(predictor: SharedCallPredictor, user: str, code: Any, times: int = 3) -> None:
    """Let a user make the same two calls in several runs."""
    for _ in range(times):
        run = predictor.run(user_id=user)
        run.user("hello")
        run.calls([ToolCall("login", {"pin": code})])
        run.calls([ToolCall("pay", {"card": code})])


def first_guesses(predictor: SharedCallPredictor, user: str) -> list[PredictedCall]:
    """Return what is guessed for a user at the beginning of a run, and after one call."""
    run = predictor.run(user_id=user)
    run.user("hello")
    guesses = list(run.guess(10))
    run.calls([ToolCall("login", {"pin": "0000"})])
    return guesses + list(run.guess(10))


def test_an_executor_that_begins_knows_what_the_others_have_learned() -> None:
    fleet = Fleet(3)
    for i, steps in enumerate(support_runs(60)):
        play(fleet.executors[i % 3].run(), steps)
    fleet.share()
    fleet.share()
    cold, score = SharedCallPredictor(lambda event: None), Score()
    assert cold.load(fleet.model.snapshot())
    assert cold.events == fleet.model.version
    for steps in support_runs(30, seed=1):
        play(cold.run(), steps, score)
    assert score.right / score.calls > 0.75


def test_two_executors_with_one_snapshot_make_equal_guesses() -> None:
    fleet = Fleet(2)
    for i, steps in enumerate(support_runs(30)):
        play(fleet.executors[i % 2].run(user_id=f"u{i}"), steps)
    fleet.share()
    snapshot = fleet.model.snapshot()
    found = []
    for _ in range(2):
        executor = SharedCallPredictor(lambda event: None)
        executor.load(snapshot)
        run = executor.run(user_id="new")
        run.user("Hello. I want a refund please, my id is user_000001.")
        found.append(run.guess())
    assert found[0] == found[1] != []


def test_local_learning_goes_on_from_a_snapshot_as_the_worker_does() -> None:
    """With one executor the snapshot and its own decisions give the worker's model, to the bit."""
    late: list[Mapping[str, Any]] = []
    executor, model = SharedCallPredictor(late.append), FleetModel()
    for i, steps in enumerate(support_runs(20)):
        play(executor.run(), steps)
        if i % 5 == 4:
            for event in late[: len(late) // 2]:  # the snapshot never covers all
                model.apply(event)
            del late[: len(late) // 2]
            assert executor.load(model.snapshot())
    for event in late:
        model.apply(event)
    own = executor._predictor.model
    assert own.tools.weights == model.model.tools.weights
    assert own.arguments.flag_weights == model.model.arguments.flag_weights
    assert own.memory.table.young == model.model.memory.table.young


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.replace(b"model 1\n", b"model 2\n", 1), "upgrade the client"),
        (lambda data: data[:-30], "damaged"),
        (lambda data: b"{}", "no state"),
        (lambda data: b"", "no state"),
    ],
)
def test_a_snapshot_that_cannot_be_used_is_reported_once(change: Any, message: str) -> None:
    fleet, reported = Fleet(), list[str]()
    executor = SharedCallPredictor(fleet.emit, report=reported.append)
    repeated(executor, "a", "1234")
    before = first_guesses(executor, "a")
    assert before
    for _ in range(3):
        assert not executor.load(change(fleet.model.snapshot()))
    assert len(reported) == 1
    assert message in reported[0]
    assert [each[:2] for each in first_guesses(executor, "a")] == [each[:2] for each in before]
    assert executor.load(fleet.model.snapshot())


@pytest.mark.parametrize("member", ["tools", "arguments", "ranking"])
def test_a_snapshot_with_lists_of_another_length_is_not_used(member: str) -> None:
    fleet, reported = Fleet(), list[str]()
    repeated(fleet.executors[0], "a", "1234")
    head, _, text = fleet.model.snapshot().partition(b"\n")
    state = json.loads(zlib.decompress(text))
    place = {"tools": 1, "arguments": 2, "ranking": 0}[member]
    state[member][place] = state[member][place][:-1]
    executor = SharedCallPredictor(fleet.emit, report=reported.append)
    assert not executor.load(head + b"\n" + zlib.compress(json.dumps(state).encode()))
    assert "damaged" in reported[0]


def test_a_snapshot_of_another_hash_key_is_not_used() -> None:
    fleet, reported = Fleet(), list[str]()
    repeated(fleet.executors[0], "a", "1234")
    executor = SharedCallPredictor(fleet.emit, hash_key=b"other", report=reported.append)
    assert not executor.load(fleet.model.snapshot())
    assert "hash_key" in reported[0]


def test_without_a_snapshot_an_executor_goes_on() -> None:
    executor = SharedCallPredictor(lambda event: None, lambda: None)
    assert not executor.refresh()
    repeated(executor, "a", "1234")
    assert first_guesses(executor, "a")


def test_events_that_cannot_be_emitted_are_reported_and_guesses_go_on() -> None:
    def full(event: Mapping[str, Any]) -> None:
        raise OSError("the disk is full")

    reported: list[str] = []
    executor = SharedCallPredictor(full, report=reported.append)
    repeated(executor, "a", "1234")
    assert "1234" in str(first_guesses(executor, "a"))
    assert len(reported) == 1
    assert "disk is full" in reported[0]


def test_a_turn_that_is_too_large_is_emitted_in_part() -> None:
    fleet = Fleet()
    words = [f"w{i}" for i in range(24)]
    for _ in range(3):
        run = fleet.executors[0].run()
        run.user(" ".join(words))
        run.result("list", {f"k{i}": words for i in range(12)})
        run.calls([
            ToolCall("tool", {f"{n}.{i}": word for i, word in enumerate(words)}) for n in range(16)
        ])  # fmt: skip
    sizes = [len(event["content"]["record"]) // 2 for event in fleet.events]
    assert len(sizes) == 3
    assert 4_000 < max(sizes) <= LARGEST_RECORD
    assert fleet.model.model.arguments.leaves


@pytest.mark.parametrize("name", ["x" * 201, "\ud800"])
def test_a_tool_whose_name_no_event_can_have_is_learned_locally(name: str) -> None:
    fleet = Fleet()
    for _ in range(5):
        run = fleet.executors[0].run()
        run.calls([ToolCall(name, {"a": 1})])
        run.calls([ToolCall("next", {"b": 2})])
    run = fleet.executors[0].run()
    run.calls([ToolCall(name, {"a": 1})])
    assert run.guess()[0].tool == "next"
    assert fleet.events


def test_an_own_decision_that_the_worker_refuses_does_not_stop_loading() -> None:
    fleet = Fleet()
    repeated(fleet.executors[0], "a", "1234")
    fleet.executors[0]._own.kept.append(OwnDecision("e0", 99, 1, b"no record"))
    assert fleet.executors[0].load(fleet.model.snapshot())
    assert first_guesses(fleet.executors[0], "a")


def test_sequences_are_emitted_in_order_by_many_threads() -> None:
    fleet = Fleet()
    threads = [
        Thread(target=repeated, args=(fleet.executors[0], f"u{i}", f"code{i}", 10))
        for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sequences = [event["content"]["sequence"] for event in fleet.events]
    assert sequences == list(range(1, 81))
    assert fleet.model.model.version == 80


def test_a_reset_forgets_what_was_learned_and_loaded() -> None:
    fleet = Fleet()
    executor = fleet.executors[0]
    for user in ("a", "b", "c"):
        repeated(executor, user, "1234")
    fleet.share()
    name = executor.executor
    executor.reset()
    assert first_guesses(executor, "a") == []
    assert executor.executor != name


USERS = st.sampled_from(["u1", "u2", "u3", "u4"])
VALUES = st.sampled_from([f"value{i}" for i in range(6)])
TURNS = st.lists(
    st.tuples(USERS, st.integers(0, 1), VALUES, VALUES, st.booleans()), min_size=20, max_size=60
)


def texts(value: object) -> set[str]:
    """Return all keys and texts of arguments."""
    if isinstance(value, dict):
        return set(value) | {text for item in value.values() for text in texts(item)}
    return {value} if isinstance(value, str) else set()


@settings(max_examples=20)
@given(TURNS)
def test_a_value_leaves_an_executor_only_if_three_users_wrote_it(
    turns: list[tuple[str, int, str, str, bool]],
) -> None:
    """Neither in a guess for another user, nor in any emitted event."""
    fleet, wrote = Fleet(2), defaultdict[str, set[str]](set)
    for n, (user, place, value, name, shares) in enumerate(turns):
        if shares:
            fleet.share()
        run = fleet.executors[place].run(user_id=user)
        run.user(f"my name is {user}-text-{n}")
        wrote[f"{user}-text-{n}"].add(user)
        for text in ("q", "by", value, name):
            wrote[text].add(user)
        run.calls([ToolCall("find", {"q": value, "by": {name: 1}})])
        run.result("find", {"id": f"{user}-id-{n % 3}"})
        wrote[f"{user}-id-{n % 3}"].add(user)
        for guess in run.guess(10):
            for text in texts(guess.arguments):
                assert user in wrote[text] or len(wrote[text]) >= 3
        for event in fleet.events:
            for text in values_in(event):
                assert len(wrote[text]) >= 3
        fleet.events.clear()


def values_in(event: Mapping[str, Any]) -> set[str]:
    """Return the texts of the shared values in an event; check that a record has none."""
    content = event["content"]
    if event["event_type"] == "shared_value":
        value = json.loads(content["value"])
        if content["kind"] == "constant":
            return {value} if isinstance(value, str) else set()
        return set(re.findall(r'\["([^"]*)",', json.dumps(value[1])))
    emitted = json.dumps(event).encode() + bytes.fromhex(content["record"])
    assert not any(part in emitted for part in (b"value", b"-text-", b"-id-", b"by"))
    return set()


@pytest.mark.parametrize("canary", ["canary-5521", 918_273_645, 3.25])
def test_a_canary_is_shared_once_three_users_wrote_it(canary: object) -> None:
    fleet = Fleet(3)
    planted = json.dumps(canary).strip('"')
    for i, user in enumerate(("a", "b", "c", "other")):
        repeated(fleet.executors[i % 3], user, f"own-{user}")  # so that the structure is shared
    for i, user in enumerate(("a", "b")):
        repeated(fleet.executors[i], user, canary, 30)
        fleet.share()
        assert not found_in(fleet.events, planted)
        assert planted not in str(first_guesses(fleet.executors[2], "other"))
    assert planted in str(first_guesses(fleet.executors[0], "a"))
    repeated(fleet.executors[2], "c", canary, 30)
    fleet.share()
    assert planted in str(first_guesses(fleet.executors[2], "other"))
    assert planted in str(first_guesses(fleet.executors[1], "other"))


def found_in(events: list[dict[str, Any]], text: str) -> bool:
    """Return whether a text is in any event, also in the bytes of a record."""
    records = [
        bytes.fromhex(each["content"]["record"]) for each in events if "record" in each["content"]
    ]
    without = [{**each["content"], "record": ""} for each in events]
    return text in json.dumps(without) or any(text.encode() in data for data in records)


def test_a_user_is_a_writer_by_a_hash_that_is_for_that_only() -> None:
    events: list[Mapping[str, Any]] = []
    repeated(SharedCallPredictor(events.append, hash_key=b"a secret"), "someone", "1234", 1)
    writer = CallPredictor(hash_key=b"a secret").hash_any("\0writer\0someone")
    decisions = [each for each in events if each["event_type"] == "call_decision"]
    assert {each["content"]["writer"] for each in decisions} == {hash_text(writer)}


def test_a_run_without_a_user_is_a_writer_of_its_own() -> None:
    fleet = Fleet(2)
    for _ in range(3):
        repeated(fleet.executors[0], "", "1234", 1)
    fleet.share()
    assert "1234" in str(first_guesses(fleet.executors[1], "someone"))


@pytest.mark.parametrize(
    "arguments",
    [{"password": "hunter22"}, {"q": "AKIAIOSFODNN7EXAMPLE"}, {"card": "4111111111111111"}],
)
def test_values_that_the_scrubber_would_change_are_never_shared(arguments: dict[str, str]) -> None:
    """Also what is a secret by the name of its argument only."""
    fleet, (secret,) = Fleet(2), arguments.values()
    for i in range(12):
        run = fleet.executors[i % 2].run(user_id=f"u{i}")
        run.user("hello")
        run.calls([ToolCall("login", arguments)])
        fleet.share()
    assert not found_in(fleet.events, secret)
    assert secret not in fleet.model.constants.known().values()
    assert any(each["event_type"] == "shared_value" for each in fleet.events)  # the structure


def test_a_forged_value_neither_replaces_nor_precedes_the_true_one() -> None:
    """A process without the key has no other value for a hash, before or after the true one."""
    fleet = Fleet(2, hash_key=b"a secret of the tests")
    for user in ("a", "b", "c", "d"):
        repeated(fleet.executors[0], user, "1234")
    wanted = read_snapshot(fleet.model.snapshot())
    assert wanted.check is not None
    for identity in (*wanted.wanted_constants, *wanted.wanted_skeletons):
        for kind, text in (("constant", '"forged"'), ("skeleton", '["pay",[0,["forged",null]]]')):
            for salt in (b"", b"s" * 16):
                with pytest.raises(InvalidDecision):
                    fleet.model.apply(value_event(wanted.check, kind, identity, text, salt))
    fleet.share()
    fleet.executors[1].reset()
    assert fleet.executors[1].load(fleet.model.snapshot())
    assert "1234" in str(first_guesses(fleet.executors[1], "someone"))


def test_a_salt_is_no_secret_for_the_scrubber() -> None:
    scrub = Scrubber(Scrubbing())
    chance = random.Random(0)
    for _ in range(20_000):
        event = value_event(1, "constant", 2, '"full"', chance.randbytes(16))
        data = orjson.dumps(event)
        assert scrub(data) is data


def test_an_executor_refuses_a_value_of_another_hash_in_a_snapshot() -> None:
    """As one that was changed in Redis; it gives the true one again."""
    fleet = Fleet(2)
    for user in ("a", "b", "c", "d"):
        repeated(fleet.executors[0], user, "1234")
    fleet.share()
    for texts_of in (fleet.model.constants.texts, fleet.model.skeletons.texts):
        for table in (texts_of.old, texts_of.young):
            table.update(dict.fromkeys(table, '"forged"'))
    count = len(fleet.events)
    for executor in fleet.executors:
        assert executor.load(fleet.model.snapshot())
    assert "forged" not in str(first_guesses(fleet.executors[1], "someone"))
    for _ in range(25):
        fleet.executors[0].load(fleet.model.snapshot())
    assert any(each["event_type"] == "shared_value" for each in fleet.events[count:])
