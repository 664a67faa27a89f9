"""Makes the certificates of a test run with openssl: a CA, one that nothing trusts, and others."""

from __future__ import annotations

import subprocess
from pathlib import Path

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
_CA = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")


class Certificates:
    """PEM files in one folder. `NAME.pem` holds a certificate, `NAME.key` its key in PKCS#8."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in ("ca", "stranger"):
            self._run("req", "-x509", *_KEY, *_CA, "-days", "2", "-subj", f"/CN={name}",
                      "-keyout", f"{name}.key", "-out", f"{name}.pem")  # fmt: skip
        self.sign("server", hosts="DNS:localhost,IP:127.0.0.1")
        self.sign("worker")
        self.sign("intruder", ca="stranger")
        chain = [self.pem(name).read_text() for name in ("server", "ca")]
        store = "".join([self.key("server").read_text(), *chain])
        (folder / "keystore.pem").write_text(store)

    def pem(self, name: str) -> Path:
        return self._folder / f"{name}.pem"

    def key(self, name: str) -> Path:
        return self._folder / f"{name}.key"

    def sign(self, name: str, *, ca: str = "ca", hosts: str = "", days: int = 2) -> None:
        """Make or replace a certificate; one of -1 days has expired."""
        extensions = "extendedKeyUsage=serverAuth,clientAuth\n"
        extensions += f"subjectAltName={hosts}\n" if hosts else ""
        (self._folder / f"{name}.ext").write_text(extensions)
        self._run("req", *_KEY, "-subj", f"/CN={name}", "-keyout", f"{name}.key",
                  "-out", f"{name}.csr")  # fmt: skip
        self._run("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key",
                  "-CAcreateserial", "-days", str(days), "-out", f"{name}.pem",
                  "-extfile", f"{name}.ext")  # fmt: skip

    def _run(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self._folder, check=True, capture_output=True)
