"""The local stack with TLS, logins and ACLs: `headstart up --secure`."""
