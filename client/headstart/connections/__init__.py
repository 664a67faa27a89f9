"""How to reach each service securely: one description of TLS and login, for every client."""
