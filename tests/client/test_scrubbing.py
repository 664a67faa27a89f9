"""No secret leaves the machine: laws of the scrubber, and detect-secrets as its oracle."""

from __future__ import annotations

import importlib
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headstart.events.schema import MAX_EVENT_BYTES
from headstart.events.validation import validate
from headstart.scrubbing.patterns import PATTERNS, Pattern, find_cards, is_card
from headstart.scrubbing.scrubber import KEPT, MARK, Scrubber, Scrubbing, fold, read_scrubbing
from tests.patience import no_end_in_sight

EVENT: dict[str, Any] = {
    "id": "0193f5e2-7c1a-7123-8abc-0123456789ab",
    "event_type": "task_complete",
    "tenant": "acme",
    "workflow_type": "refund",
    "workflow_id": "w1",
    "timestamp": 1_800_000_000_000,
    "confidence": 0.8571428571428571,
    "origin": ["0193f5e2-7c1a-7123-8abc-0123456789ab", 17],
}
ASCII = st.characters(min_codepoint=9, max_codepoint=126)
CARD = "4111111111111111"
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def scrub(data: dict[str, Any], **how: Any) -> dict[str, Any]:
    event = {**EVENT, "data": data}
    written = Scrubber(Scrubbing(**how))(orjson.dumps(event))
    found: dict[str, Any] = orjson.loads(written)
    assert {**found, "data": 0} == {**EVENT, "data": 0}
    validate(found)
    scrubbed: dict[str, Any] = found["data"]
    return scrubbed


def shape(value: Any) -> Any:
    """Return keys and nesting, without what is in them."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    return [shape(item) for item in value] if isinstance(value, list) else None


@given(st.dictionaries(st.text(), json_values, max_size=6))
@example({"password": {"a": ["b", 1, None, True]}, "q": f"card {CARD}", "n": int(CARD)})
def test_whatever_is_scrubbed_stays_an_event_with_its_keys(mine: dict[str, Any]) -> None:
    event = {**EVENT, **{f"x{key}": value for key, value in mine.items()}}
    body = orjson.dumps(event)
    scrubber = Scrubber(Scrubbing())
    written = scrubber(body)
    found = orjson.loads(written)
    assert shape(found) == shape(orjson.loads(body))
    assert all(found[key] == event[key] for key in KEPT & set(event))
    assert (written is body) == (scrubber.replaced == 0)
    assert Scrubber(Scrubbing())(written) == written  # nothing is left to find


@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(st.data())
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_the_quick_look_misses_nothing_that_a_pattern_finds(
    pattern: Pattern, data: st.DataObject
) -> None:
    text = data.draw(st.from_regex(pattern.compiled(), alphabet=ASCII))
    scrubber = Scrubber(Scrubbing())
    body = orjson.dumps({**EVENT, "data": {"query": text}})
    assert scrubber._suspect(fold(body))
    scrubber(body)


# Those of detect-secrets that know secrets by their form; entropy and bare keywords are guesses.
ORACLES = {
    "artifactory": "ArtifactoryDetector", "aws": "AWSKeyDetector",
    "basic_auth": "BasicAuthDetector", "github_token": "GitHubTokenDetector",
    "gitlab_token": "GitLabTokenDetector", "jwt": "JwtTokenDetector",
    "openai": "OpenAIDetector", "private_key": "PrivateKeyDetector",
    "pypi_token": "PypiTokenDetector", "sendgrid": "SendGridDetector",
    "slack": "SlackDetector", "square_oauth": "SquareOAuthDetector",
    "stripe": "StripeDetector", "twilio": "TwilioKeyDetector",
}  # fmt: skip
SECRETS = {
    "AKIAIOSFODNN7EXAMPLE", "AKC" + "b7" * 20, "https://joe:hunter2@example.com/x",
    "ghp_" + "aB3" * 12, "glpat-" + "x9" * 10, "sk-" + "a1" * 10 + "T3BlbkFJ" + "b2" * 10,
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQdGBF\n-----END PGP PRIVATE KEY BLOCK-----",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjE", "PuTTY-User-Key-File-2: ssh-rsa",
    "pypi-AgEIcHlwaS5vcmc" + "aB_-" * 20, "SG." + "a1" * 11 + "." + "b2" * 21 + "c",
    "xoxb-123456789012-abcdefghijkl", "https://hooks.slack.com/services/T0000/B0000/" + "x" * 24,
    "sq0csp-" + "aB3-" * 10 + "xyz", "sk_live_" + "a1B2" * 6, "rk_live_" + "a1B2" * 6,
    "AC" + "0f" * 16, "SK" + "0f" * 16,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
}  # fmt: skip


@pytest.mark.parametrize(
    "around", ["{}", "he wrote: {} and left", "a\n{}\nb", '{{\\"k\\": \\"{}\\"}}']
)
def test_detect_secrets_finds_nothing_in_scrubbed_events(around: str) -> None:
    pytest.importorskip("detect_secrets")
    plugins = [
        getattr(importlib.import_module(f"detect_secrets.plugins.{module}"), name)()
        for module, name in ORACLES.items()
    ]

    def found(text: str) -> set[str]:
        lines = text.splitlines()
        return {p.secret_type for p in plugins for line in lines if any(p.analyze_string(line))}

    seen: set[str] = set()
    for secret in sorted(SECRETS):
        text = around.format(secret)
        seen |= found(text)
        clean = scrub({"query": text, "deep": [{"output": text}]})
        assert found(clean["query"]) == set(), clean["query"]
        assert clean["deep"][0]["output"] == clean["query"]
    if around == "{}":
        assert len(seen) == len(ORACLES)  # each oracle had something to find


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("curl -H 'authorization: Bearer abc123def456'", "abc123def456"),
        ("?api_key=s3cr3tvalue&page=2", "s3cr3tvalue"),
        ('{"db_password": "hunter2"}', "hunter2"),
        ('{\\"accessToken\\":\\"tok_12345\\"}', "tok_12345"),
        ("postgres://app:p@ss@db:5432/x", "p@ss"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG", "wJalrXUtnFEMI/K7MDENG"),
        ("hf_" + "a1B2" * 9, "a1B2"),
        ("key AIza" + "a1B_-" * 7, "a1B_-"),
        ("card 4111 1111 1111 1111.", "1111"),
        ("card 4111-1111-1111-1111", "1111"),
        ("amex 3782 822463 10005", "822463"),
        (f"paid with {CARD}", CARD),
    ],
)
def test_secrets_are_replaced(given: str, expected: str) -> None:
    assert expected in given
    assert expected not in scrub({"query": given})["query"]


@pytest.mark.parametrize(
    "clean",
    [
        {"usage": {"prompt_tokens": 12, "completion_tokens": 512, "token_count": 9}},
        {"query": "the basic information is on page 3, ask whether-they-came-with-us-or-not"},
        {"query": "write to joe@example.com or see https://example.com/a@b?page=1"},
        {"at": 1_800_000_000_000_000_000, "ratio": 0.4111111111111111, "n": 4111111111111112},
        {"query": "4111 1111 1111 1112 is no card, nor is 41111111-1111-4111-8111-111111111111"},
        {"trace": "0af7651916cd43dd8448eb211c80319c", "monkey": "business", "keyboard": "us"},
    ],
)
def test_other_text_is_kept(clean: dict[str, Any]) -> None:
    assert scrub(clean) == clean


def test_values_below_a_secret_key_go_and_its_shape_stays() -> None:
    given = {"credentials": {"user": "u", "pins": [1, None, True, "x"]}, "apiKey": "", "pwd": 5}
    assert scrub(given) == {
        "credentials": {"user": MARK, "pins": [MARK, None, True, MARK]},
        "apiKey": "",
        "pwd": MARK,
    }


def test_numbers_of_the_contract_stay_numbers() -> None:
    result = {"gain_ms": int(CARD), "cost_ms": 1.0, "execution_time_ms": 2.0}
    given = {"result": result, "secret": {"reward": 1}}
    assert scrub(given) == given


def test_an_event_at_its_limit_does_not_grow_beyond_it() -> None:
    event = {**EVENT, "data": {"pwd": ["x"] * 1000, "query": ""}}
    event["data"]["query"] = "y" * (MAX_EVENT_BYTES - len(orjson.dumps(event)))
    written = Scrubber(Scrubbing())(orjson.dumps(event))
    assert len(written) <= MAX_EVENT_BYTES
    assert orjson.loads(written)["data"]["pwd"] == ["*"] * 1000


def test_keys_and_patterns_of_one_s_own() -> None:
    own = Pattern("employee", r"EMP-\d{6}", hint="emp_000000")
    given = {"IBAN": "DE02", "q": "ask EMP-123456", "m": "hunter2", "password": "x"}
    settings = {"keys": ("iban",), "patterns": (own,)}
    assert scrub(given, **settings) == {"IBAN": MARK, "q": f"ask {MARK}", "m": "hunter2",
                                        "password": MARK}  # fmt: skip
    unhinted = Pattern("hunter", "hunter[0-9]")
    assert scrub(given, patterns=(unhinted,))["m"] == MARK
    card = {"q": CARD}
    assert scrub(card, without=("card",)) == card
    described = orjson.loads(orjson.dumps(Scrubbing(**settings)))  # as a spool's file has it
    assert read_scrubbing(described) == Scrubbing(**settings)


def test_secrets_are_counted_by_kind() -> None:
    scrubber = Scrubber(Scrubbing())
    scrubber(orjson.dumps({**EVENT, "data": {"pwd": "x", "q": f"{CARD} sk-{'a1' * 12}"}}))
    assert scrubber.counts == {"key": 1, "card": 1, "sk_key": 1}
    assert scrubber.replaced == 3


@pytest.mark.parametrize(
    ("begin", "again"),
    [
        ("bearer", "+"), ("", "bearer+"), ("", "bearer ++"), ("", "eyJ"), ("", "eyJhbG."),
        ("-----BEGIN PRIVATE KEY-----", "-----END "), ("", "-----BEGIN PRIVATE KEY "),
        ("-----BEGIN PRIVATE KEY----------END ", "PRIVATE KEY"), ("", "-----BEGIN "),
        ("PuTTY-User-Key-File-2", "Private-MAC: "), ("token", "\""), ("token=", " "),
        ("", "token-"), ("", "authorization=a "), ("authorization:", "a"), ("://", "a:"),
        ("", "://a:"), ("", "SG."), ("xoxb", "-aaaaaaaa"), ("", "sk-aaaaaaa"), ("", "4111 "),
    ],
)  # fmt: skip
def test_no_text_takes_for_ever(begin: str, again: str) -> None:
    event = {**EVENT, "data": {"q": begin + again * (200_000 // len(again))}}
    with no_end_in_sight():
        Scrubber(Scrubbing())(orjson.dumps(event))


@pytest.mark.parametrize("token", ["eyJ" * 9 + ".abcd", "eyJhbGc.eyJzdWI.x.y/z", "eyJabcd.e=-_"])
def test_a_token_is_found_whole_among_what_only_begins_like_one(token: str) -> None:
    assert scrub({"q": f"eyJ {token} eyJab eyJabcd.abc"})["q"] == f"eyJ {MARK} eyJab eyJabcd.abc"


@pytest.mark.parametrize("body", [b'["password"]', b'{"password": nonsense}'])
def test_events_that_are_not_json_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Scrubber(Scrubbing())(body)


def test_a_uuid_of_digits_is_not_taken_apart() -> None:
    """A spool's is in every event of its process, and being taken apart costs ten times as much."""
    event = b'{"origin":["41119999-4111-7111-8111-411111111111",7], nonsense'
    assert Scrubber(Scrubbing())(event) is event


@settings(max_examples=500)
@given(
    st.lists(
        st.sampled_from(["4111", "1111", "2221", "4", "11111", " ", "-", "_", ".", "x", "\n"])
    ),
    st.sampled_from(["4111 1111 1111 1111", "4111-1111-1111-1111", "3782 822463 10005", CARD]),
)
def test_the_quick_look_misses_no_card_among_other_digits(around: list[str], card: str) -> None:
    text = "".join([*around, card])
    expected = find_cards(text, lambda _digits: "")
    found = scrub({"q": text})["q"]
    assert (found == text) == (expected == text)


@pytest.mark.parametrize(
    "settings",
    [{"where": "later"}, {"without": ("nothing",)}, {"patterns": (Pattern("x", "("),)}],
)
def test_a_setting_that_means_nothing_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|no pattern is named|is wrong"):
        Scrubbing(**settings)


@given(st.integers(10**12, 10**18))
def test_luhn_as_it_is_written_down(number: int) -> None:
    """ISO/IEC 7812-1, annex B: double every second digit from the right, add the digits."""
    digits = str(number)
    spelt = "".join(str(int(d) * (1 + i % 2)) for i, d in enumerate(reversed(digits)))
    if is_card(digits):
        assert sum(map(int, spelt)) % 10 == 0
    elif len(digits) >= 16 and digits[0] in "3456":
        assert sum(map(int, spelt)) % 10 != 0
