"""The setting of encryption at rest."""

from __future__ import annotations

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings


class EncryptionSettings(BaseSettings):
    """The master keys of `sinks.postgres.encryption`."""

    encryption_key: SecretStr = Field(
        SecretStr(""),
        description="master keys of encryption at rest, ID:BASE64, the newest first, separated by "
        "commas or line breaks; empty: new texts are stored as they are",
    )

    @field_validator("encryption_key")
    @classmethod
    def _are_master_keys(cls, value: SecretStr) -> SecretStr:
        if value.get_secret_value():
            from sinks.postgres.encryption.master_keys import parse_master_keys

            parse_master_keys(value.get_secret_value())
        return value
