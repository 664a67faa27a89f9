"""Makes the certificates of a test run: a CA, one that nothing trusts, and others."""

from __future__ import annotations

from pathlib import Path

from deploy.local.secure.certificates import LOCAL_HOSTS, CertificateFolder


class Certificates(CertificateFolder):
    """The CAs `ca` and `stranger`, and certificates for a server and clients."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for name in ("ca", "stranger"):
            self.make_ca(name, days=2)
        self.sign("server", hosts=LOCAL_HOSTS)
        self.sign("worker")
        self.sign("intruder", ca="stranger")
        self.keystore = self.write_keystore("server")

    def sign(self, name: str, *, ca: str = "ca", hosts: str = "", days: int = 2) -> None:
        """Make or replace a certificate; one of -1 days has expired."""
        super().sign(name, ca=ca, hosts=hosts, days=days)
