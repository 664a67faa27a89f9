"""The settings file: below flags and environment, above the rest; its errors name key and line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from headstart.scrubbing.masking import masked
from settings import SettingsError, read_settings, read_with_origins
from settings.origins import shown


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(text: str, path: str = "headstart.toml") -> None:
    Path(path).write_text(text)


def test_environment_and_flags_override_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written('kafka = "file:1"\nlearner = "ema"\nlevels = ["region", "domain"]\npartitions = 3\n')
    found = read_settings()
    assert (found.kafka, found.learner, found.partitions) == ("file:1", "ema", 3)
    assert found.levels == ("region", "domain")
    monkeypatch.setenv("HEADSTART_KAFKA", "environment:1")
    monkeypatch.setenv("HEADSTART_PARTITIONS", "4")
    found = read_settings(partitions=5)
    assert (found.kafka, found.partitions, found.learner) == ("environment:1", 5, "ema")


def test_each_setting_has_its_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    written('# ours\n\nkafka = "file:1"\nlevels = [\n  "region",\n]\nlearner = "ema"\n')
    monkeypatch.setenv("HEADSTART_LEARNER", "td")
    origins = read_with_origins(redis="redis://flag:1/0", postgres=None).origins
    assert {name: origins[name] for name in ("kafka", "levels", "learner", "redis", "data")} == {
        "kafka": "file headstart.toml, line 3",
        "levels": "file headstart.toml, line 4",
        "learner": "environment HEADSTART_LEARNER",
        "redis": "flag",
        "data": "default",
    }
    assert origins["postgres"] == "default"


def test_a_named_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    written("partitions = 3")
    written("partitions = 9", "other.toml")
    monkeypatch.setenv("HEADSTART_CONFIG", str(tmp_path / "other.toml"))
    assert read_settings().partitions == 9
    monkeypatch.setenv("HEADSTART_CONFIG", "missing.toml")
    with pytest.raises(SettingsError, match=r"missing\.toml does not exist \(HEADSTART_CONFIG"):
        read_settings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "kafka = 'a:1'\n\nlerner = 'ema'\n",
            r"line 3: there is no setting 'lerner' \(did you mean 'learner'",
        ),
        ("[topics]\npartitions = 3\n", r"line 1: there is no setting 'topics'"),
        ("x.y = 1\n", r"line 1: there is no setting 'x'"),
        ("# \"\"\"\nkafka = '''\nzzz = 1\n'''\nzzz = 1\n", r"line 5: there is no setting 'zzz'"),
        ("partitions = 3\npartitions = 4\n", r"headstart\.toml: Cannot overwrite a value"),
        ("partitions = \n", r"headstart\.toml: Invalid value \(at line 1"),
        ("\npartitions = 0\n", r"setting partitions in headstart\.toml, line 2: .*\(got 0\)"),
        ("learner = 'guess'\n", r"setting learner in headstart\.toml, line 1: .*choose one of"),
    ],
)
def test_an_error_names_key_and_line(text: str, message: str) -> None:
    written(text)
    with pytest.raises(SettingsError, match=message) as caught:
        read_settings()
    assert "\n" not in str(caught.value)


def test_a_bad_flag_is_not_blamed_on_the_file() -> None:
    written("partitions = 3\n")
    with pytest.raises(SettingsError, match=r"^setting partitions: .*\(got 0\)"):
        read_settings(partitions=0)


def test_an_unreadable_file() -> None:
    Path("headstart.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match=r"headstart\.toml cannot be read"):
        read_settings()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("postgresql://ann:hush@db:5432/x", "postgresql://ann:***@db:5432/x"),
        ("redis://:hush@h:1/0", "redis://:***@h:1/0"),
        ("redis://h:1/0?password=hush&x=1", "redis://h:1/0?password=***&x=1"),
        ("postgresql://ann:a/b@c@db/x?sslpassword=d", "postgresql://ann:***@db/x?sslpassword=***"),
        ("rediss://h:1/0?a=1&password=hush&x=1", "rediss://h:1/0?a=1&password=***&x=1"),
        ("host=db password=h&ush user=ann", "host=db password=*** user=ann"),
        ("host=db password='hu sh' user=ann", "host=db password=*** user=ann"),
        ("127.0.0.1:9092", "127.0.0.1:9092"),
    ],
)
def test_passwords_are_masked(address: str, expected: str) -> None:
    assert masked(address) == expected


def test_every_setting_is_shown_with_its_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADSTART_SPOOL", "/spool")
    found = {each.name: each for each in shown(read_with_origins(redis="redis://:hush@h:1/0"))}
    assert all(each.meaning and each.origin for each in found.values())
    assert found["redis"].value == "redis://:***@h:1/0"
    assert found["levels"].value == "domain,user_id"
    assert found["spool"][1:3] == ("/spool", "environment HEADSTART_SPOOL")


def test_a_secret_is_masked_whole() -> None:
    reading = read_with_origins()
    secret: Any = SecretStr("hush")
    settings = reading.settings.model_copy(update={"instance": secret})
    found = {each.name: each for each in shown(replace(reading, settings=settings))}
    assert "hush" not in str(found)
