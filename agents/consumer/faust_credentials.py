"""Gives Faust's clients the same TLS and login as all others of the process."""

from __future__ import annotations

import faust
from faust.types.auth import CredentialsT

from headstart.connections.kafka_connections import client_options


def broker_credentials() -> CredentialsT | None:
    """Return Faust's credentials of the process's own security; None for plain text.

    Raises `UnusableSecurity`.
    """
    options = client_options()
    context = options.get("ssl_context")
    if "sasl_oauth_token_provider" in options:
        return faust.OAuthCredentials(
            oauth_cb=options["sasl_oauth_token_provider"], ssl_context=context
        )
    if "sasl_mechanism" in options:
        return faust.SASLCredentials(
            username=options["sasl_plain_username"],
            password=options["sasl_plain_password"],
            mechanism=options["sasl_mechanism"],
            ssl_context=context,
        )
    return faust.SSLCredentials(context) if context is not None else None
