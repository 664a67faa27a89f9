"""What is hidden, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from headstart.scrubbing import masking
from headstart.scrubbing.masking import (
    masked,
    masked_address,
    needs_encoding,
    remember_passwords,
    remember_secret,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://ann:a@b/c:d@db:5/x", "postgresql://ann:***@db:5/x"),
        ("postgresql://ann:hush@a:5,b:6/x?q=1", "postgresql://ann:***@a:5,b:6/x?q=1"),
        ("redis://:hush@h:1/0 and redis://:shh@i", "redis://:***@h:1/0 and redis://:***@i"),
        ("redis://h/0?db=1&password=hush&x=1", "redis://h/0?db=1&password=***&x=1"),
        ("host=db password='hu sh' user=ann", "host=db password=*** user=ann"),
        ('jaas.Login required password="hush" ;', "jaas.Login required password=*** ;"),
        ("HEADSTART_OPERATORS_KEY=hush", "HEADSTART_OPERATORS_KEY=***"),
        ('{"sasl_password": "hush"}', '{"sasl_password": ***}'),
        ("ssl.keystore.password = hush", "ssl.keystore.password = ***"),
        ("no broker at user:hush@broker:9092", "no broker at user:***@broker:9092"),
    ],
)
def test_secrets_are_hidden(text: str, expected: str) -> None:
    assert masked(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1:9092",
        "postgresql://ann@db:5432/x",
        "unexpected token: line 1",
        "the password or user is wrong",
        "it wants a password",
        "key=default\x1frefund",
    ],
)
def test_other_text_stays(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("redis-cli -a hush -h x", "***"),
        ("hush", "***"),
        ("http://hush@h", "***"),
        ("127.0.0.1:6379/0", "127.0.0.1:6379/0"),
        ("redis://:hush@h:1/0", "redis://:***@h:1/0"),
        ("host=db  password='hu sh' dbname=x", "host=db  password=*** dbname=x"),
        ("host=db hush", "***"),
        ("", ""),
    ],
)
def test_an_unparsable_address_is_masked_whole(address: str, shown: str) -> None:
    assert masked_address(address) == shown


def test_configured_secrets_are_masked_anywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(masking, "_secrets", {})
    remember_secret("operators-key=")
    remember_passwords("postgresql://ann:p%40ssword@db/x", "host=db password='two words'")
    text = masked("FATAL: 'p@ssword', p%40ssword, two words, operators-key=, ann")
    assert text == "FATAL: '***', ***, ***, ***, ann"


def test_a_short_secret_does_not_hide_every_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "_secrets", {})
    remember_passwords("postgresql://ann:x@db/x")
    assert masked("an extra axis") == "an extra axis"


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("redis://:a/b@h", True),
        ("postgresql://u:a@b@h/x", True),
        ("postgresql://u:a%40b@h/x", False),
        ("redis://h:1/0", False),
    ],
)
def test_a_password_that_must_be_encoded(url: str, wrong: bool) -> None:
    assert needs_encoding(url) is wrong


def test_only_whole_words_are_hidden_and_the_longest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "_secrets", {})
    remember_secret("secret")
    remember_secret("secret-of-operators")
    assert masked("secret-of-operators, secretary, my secret.") == "***, secretary, my ***."


class LogsAtEachChange(dict[str, Any]):
    """Secrets, where another thread writes a log line at each moment of a change."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def __setitem__(self, *item: Any) -> None:
        super().__setitem__(*item)
        self.lines.append(masked("it refuses secret-of-a-file"))

    def clear(self) -> None:
        super().clear()
        self.lines.append(masked("it refuses secret-of-a-file"))


def test_a_secret_stays_masked_while_it_is_remembered_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As those in files are, at each connection."""
    secrets = LogsAtEachChange()
    monkeypatch.setattr(masking, "_secrets", secrets)
    for each in ("secret-of-a-file", "secret-of-a-file", "another-secret"):
        remember_secret(each)
    assert set(secrets.lines) == {"it refuses ***"}


def test_a_password_that_is_also_the_user_stays_readable_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(masking, "_secrets", {})
    url = "postgresql://headstart:headstart@db:5432/headstart"
    remember_passwords(url, "postgresql://service:service@db/x")
    assert masked(url) == "postgresql://headstart:***@db:5432/headstart"
    assert masked("start one with `headstart up`, role service") == (
        "start one with `headstart up`, role service"
    )
