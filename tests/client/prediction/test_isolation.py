"""No user's value is guessed for another user, unless three users have written it."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.prediction.interface import PredictedCall, ToolCall
from headstart.prediction.predictor import CallPredictor

USERS = st.sampled_from(["u1", "u2", "u3", "u4"])
VALUES = st.sampled_from([f"value{i}" for i in range(6)])
TURNS = st.lists(
    st.tuples(USERS, st.sampled_from(["find", "send"]), VALUES, VALUES, st.booleans()),
    min_size=20, max_size=80,
)  # fmt: skip


def texts(value: object) -> set[str]:
    """Return all keys and texts of arguments."""
    if isinstance(value, dict):
        return set(value) | {text for item in value.values() for text in texts(item)}
    if isinstance(value, list):
        return {text for item in value for text in texts(item)}
    return {value} if isinstance(value, str) else set()


@settings(max_examples=25)
@given(TURNS)
def test_a_value_of_one_user_reaches_another_only_if_three_wrote_it(
    turns: list[tuple[str, str, str, str, bool]],
) -> None:
    """Keys of arguments are values, too; results and texts are never shared."""
    predictor = CallPredictor()
    runs = {user: predictor.run(user_id=user) for user in ("u1", "u2", "u3", "u4")}
    wrote: dict[str, set[str]] = defaultdict(set)
    for n, (user, tool, value, key, starts_run) in enumerate(turns):
        if starts_run:
            runs[user] = predictor.run(user_id=user)
        run = runs[user]
        run.user(f"my name is {user}-text-{n}")
        wrote[f"{user}-text-{n}"].add(user)
        for guess in run.guess(10):
            for text in texts(guess.arguments):
                assert user in wrote[text] or len(wrote[text]) >= 3
        run.calls([ToolCall(tool, {"q": value, "by": {key: 1}})])
        for text in ("q", "by", value, key):
            wrote[text].add(user)
        run.result(tool, {"id": f"{user}-id-{n % 3}"})
        wrote[f"{user}-id-{n % 3}"].add(user)


def repeated(predictor: CallPredictor, user: str, code: str, times: int) -> None:
    for _ in range(times):
        run = predictor.run(user_id=user)
        run.calls([ToolCall("login", {"pin": code})])
        run.calls([ToolCall("pay", {"card": code})])


def first_guesses(predictor: CallPredictor, user: str) -> list[PredictedCall]:
    run = predictor.run(user_id=user)
    guesses = list(run.guess(10))
    run.calls([ToolCall("login", {"pin": "0000"})])
    return guesses + list(run.guess(10))


def test_a_canary_of_one_user_or_two_is_never_guessed_for_another() -> None:
    predictor = CallPredictor()
    for user in ("a", "b", "other"):
        repeated(predictor, user, f"own-{user}", 5)  # so that the structure of calls is shared
    for user in ("a", "b"):
        repeated(predictor, user, "canary", 50)
        assert "canary" not in str(first_guesses(predictor, "other"))
    assert "canary" in str(first_guesses(predictor, "a"))
    repeated(predictor, "c", "canary", 50)
    assert "canary" in str(first_guesses(predictor, "other"))  # now three users have written it


def test_whole_calls_are_remembered_for_their_own_user_only() -> None:
    """Also where all the values of a call were written by three users, one each."""
    predictor = CallPredictor()
    for user in ("a", "b", "c"):
        repeated(predictor, user, f"code-{user}", 9)
    assert "code-" not in str(first_guesses(predictor, "d"))
    assert "code-a" in str(first_guesses(predictor, "a"))


def test_runs_without_a_user_are_of_one_user() -> None:
    predictor = CallPredictor()
    repeated(predictor, "", "1234", 9)
    assert "1234" in str(first_guesses(predictor, ""))


def test_a_restored_predictor_keeps_users_apart() -> None:
    predictor = CallPredictor()
    for user in ("a", "b", "other"):
        repeated(predictor, user, f"own-{user}", 5)
    repeated(predictor, "a", "canary", 50)
    restored = CallPredictor.from_bytes(predictor.to_bytes())
    assert "canary" not in str(first_guesses(restored, "other"))
    assert "canary" in str(first_guesses(restored, "a"))
