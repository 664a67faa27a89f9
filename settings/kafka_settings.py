"""The settings of TLS and login for Kafka; `settings.connections` makes a description of them."""

from __future__ import annotations

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings


class KafkaSettings(BaseSettings):
    """Each has the variable HEADSTART_ and its name in capitals, and one without HEADSTART_.

    `kafka_config` has only the former. Their names but for `kafka_` are the options in
    `headstart.connections.kafka_security`.
    """

    kafka_config: str = Field(
        "", description="Kafka client.properties (keys of librdkafka or Java) with TLS and login"
    )
    kafka_security_protocol: str = Field(
        "", description="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; empty: by the other settings"
    )
    kafka_sasl_mechanism: str = Field(
        "", description="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM"
    )
    kafka_sasl_username: str = Field("", description="user of the Kafka login")
    kafka_sasl_username_file: str = Field(
        "", description="file with that user, read again for each connection"
    )
    kafka_sasl_password: SecretStr = Field(SecretStr(""), description="its password")
    kafka_sasl_password_file: str = Field(
        "", description="file with that password, read again for each connection"
    )
    kafka_ssl_ca: str = Field(
        "", description="PEM file of the CAs that sign brokers' certificates; empty: the system's"
    )
    kafka_ssl_cert: str = Field("", description="PEM file of this client's certificate")
    kafka_ssl_key: str = Field("", description="PEM file of its key; empty: in the same file")
    kafka_ssl_key_password: SecretStr = Field(SecretStr(""), description="password of that key")
    kafka_ssl_key_password_file: str = Field("", description="file with that password")
    kafka_ssl_check_hostname: bool = Field(
        True, description="check that a broker's certificate is for its host name"
    )
    kafka_oauth_token_url: str = Field("", description="token endpoint for OAUTHBEARER")
    kafka_oauth_client_id: str = Field("", description="client id for the token endpoint")
    kafka_oauth_client_secret: SecretStr = Field(
        SecretStr(""), description="client secret for the token endpoint"
    )
    kafka_oauth_client_secret_file: str = Field("", description="file with that secret")
    kafka_oauth_scope: str = Field("", description="scope that is asked for")
    kafka_aws_region: str = Field(
        "", description="region of the MSK cluster for AWS_MSK_IAM; empty: AWS_REGION"
    )
