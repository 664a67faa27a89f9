"""Makes certificate authorities and the certificates they sign, with the program openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from deploy.local.errors import StackError
from deploy.local.secure.private_files import write_private

_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
_CA: Final = (
    "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign",
)  # fmt: skip
LOCAL_HOSTS: Final = "DNS:localhost,IP:127.0.0.1"


class CertificateFolder:
    """PEM files in one folder. `NAME.pem` holds a certificate, `NAME.key` its key in PKCS#8.

    Keys have mode 0600. Every certificate serves for servers and for clients.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def pem(self, name: str) -> Path:
        """Return the file of a certificate."""
        return self.folder / f"{name}.pem"

    def key(self, name: str) -> Path:
        """Return the file of a certificate's key."""
        return self.folder / f"{name}.key"

    def make_ca(self, name: str, *, days: int) -> None:
        """Make an authority that signs itself. Raises `StackError`."""
        self._run("req", "-x509", *_KEY, *_CA, "-days", str(days), "-subj", f"/CN={name}",
                  "-keyout", f"{name}.key", "-out", f"{name}.pem")  # fmt: skip
        self.key(name).chmod(0o600)

    def sign(self, name: str, *, ca: str = "ca", hosts: str = "", days: int) -> None:
        """Make or replace a certificate with the common name `name`. Raises `StackError`.

        `hosts`: subject alternative names, as openssl writes them. One of -1 days has expired.
        """
        extensions, request = self.folder / f"{name}.ext", self.folder / f"{name}.csr"
        text = "extendedKeyUsage=serverAuth,clientAuth\n"
        extensions.write_text(text + (f"subjectAltName={hosts}\n" if hosts else ""))
        self._run("req", *_KEY, "-subj", f"/CN={name}", "-keyout", f"{name}.key",
                  "-out", request.name)  # fmt: skip
        self.key(name).chmod(0o600)
        self._run("x509", "-req", "-in", request.name, "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key",
                  "-CAcreateserial", "-days", str(days), "-out", f"{name}.pem",
                  "-extfile", extensions.name)  # fmt: skip
        extensions.unlink()
        request.unlink()

    def write_keystore(self, name: str, *, ca: str = "ca") -> Path:
        """Write key and chain of a certificate into one file, as Kafka reads them; return it."""
        store = self.folder / f"{name}-keystore.pem"
        parts = (self.key(name), self.pem(name), self.pem(ca))
        write_private(store, "".join(each.read_text() for each in parts))
        return store

    def _run(self, *arguments: str) -> None:
        try:
            subprocess.run(
                ["openssl", *arguments], cwd=self.folder, check=True, capture_output=True, text=True
            )
        except FileNotFoundError:
            raise StackError(
                "certificates are made with openssl, and it is not on PATH: install openssl"
            ) from None
        except subprocess.CalledProcessError as error:
            raise StackError(f"openssl failed: {' '.join(error.stderr.split())}") from None
