"""Signs tokens for Amazon MSK with the AWS credentials of the process (IAM access control)."""

from __future__ import annotations

import time

from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

from headstart.connections.kafka_connections import NoToken
from headstart.connections.kafka_security import KafkaSecurity
from headstart.connections.oauth import Token


def fetch_signed(security: KafkaSecurity) -> Token:
    """Return a token for the cluster's region, signed by the AWS signer of MSK. Raises `NoToken`.

    Credentials are those that the AWS SDK finds: variables, profile, role of the container or host.
    Only the credentials of a role cost a request.
    """
    try:
        text, expires_ms = MSKAuthTokenProvider.generate_auth_token(security.aws_region)
    except Exception as error:  # botocore's errors have no common class with the signer's
        raise NoToken(
            f"no AWS credentials to sign a token with ({type(error).__name__})",
            "give the process AWS credentials (AWS_PROFILE, AWS_ACCESS_KEY_ID, or a role) that may "
            "connect to the cluster",
        ) from None
    return Token(text, expires_ms / 1000 - time.time())
