"""The Secrets of an embedded cluster: folders with one file for each key, below the data folder.

They have the same names and contents as on Kubernetes. Only the user of this process can read them. Brokers follow the
files of their certificates, so renewed ones need no restart. A Secret that the resources name is such a folder, too,
which the user makes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from odradek_operator.crds import Cluster
from odradek_operator.embedded.child import system_error
from odradek_operator.embedded.ports import LOOPBACK
from odradek_operator.errors import EmbeddedError
from odradek_operator.objects import names
from odradek_operator.security.authorities import AuthorityError
from odradek_operator.security.material import Files, cluster_files, secrets_of

CHECK_SECONDS: Final = 3_600.0
"""Seconds after which it is checked again whether certificates have to be renewed."""
MAX_FILE_BYTES: Final = 1 << 20


class SecretFiles:
    """The Secrets of one cluster."""

    def __init__(self, folder: Path) -> None:
        """`folder` is created with the first Secret."""
        self.folder: Final = folder
        self._settled: tuple[object, float] = (None, 0.0)
        """For what the certificates were last completed, and when."""

    def settle(self, cluster: Cluster, brokers: Collection[int]) -> None:
        """Complete and renew the certificates of a cluster that has a secured listener. Raises `EmbeddedError`."""
        hosts = {broker: _hosts(cluster) for broker in brokers}
        key, now = (hosts, cluster.certificate_authorities), time.monotonic()
        if not cluster.is_secured or (self._settled[0] == key and now - self._settled[1] < CHECK_SECONDS):
            return
        stored = {name: files for name in sorted(secrets_of(cluster)) if (files := self.read(name))}
        try:
            wanted = cluster_files(cluster, hosts, stored, now=datetime.now(UTC)).secrets
        except AuthorityError as error:
            raise EmbeddedError(f"{error}. Here, Secrets are folders in {self.folder}.") from error
        for name, files in wanted.items():
            if name != names.zookeeper_certs(cluster.name) and stored.get(name) != files:
                self.write(name, files)
        self._settled = (key, now)

    def read(self, name: str) -> dict[str, bytes]:
        """Return the files of a Secret by name; none if it does not exist. Raises `EmbeddedError`."""
        folder, found = self.folder / name, {}
        try:
            for path in sorted(folder.iterdir()) if folder.is_dir() else []:
                if path.is_file() and not path.name.startswith("."):
                    found[path.name] = path.read_bytes()[: MAX_FILE_BYTES + 1]
        except OSError as error:
            raise EmbeddedError(system_error(f"Secret {folder} cannot be read", error)) from error
        if too_large := [key for key, content in found.items() if len(content) > MAX_FILE_BYTES]:
            raise EmbeddedError(f"{folder / too_large[0]} is larger than {MAX_FILE_BYTES >> 20} MiB: it is no Secret.")
        return found

    def write(self, name: str, files: Files) -> None:
        """Replace the files of a Secret, each at once. Raises `EmbeddedError`."""
        folder = self.folder / name
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for key, content in files.items():
                draft = folder / f".{key}"
                draft.unlink(missing_ok=True)
                with open(draft, "xb", opener=_private) as file:
                    file.write(content)
                draft.replace(folder / key)
            for path in folder.iterdir():
                if path.name not in files:
                    path.unlink()
        except OSError as error:
            raise EmbeddedError(system_error(f"Secret {folder} cannot be written", error)) from error

    def remove(self, name: str) -> None:
        """Remove a Secret that `write` has made. Raises `EmbeddedError`."""
        if (self.folder / name).is_dir():
            self.write(name, {})
            try:
                (self.folder / name).rmdir()
            except OSError as error:
                raise EmbeddedError(system_error(f"Secret {self.folder / name} cannot be removed", error)) from error


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _hosts(cluster: Cluster) -> tuple[str, ...]:
    """Return the names at which clients reach a broker."""
    given = {name for listener in cluster.listeners for name in listener.alternative_names}
    return tuple(sorted({LOOPBACK, "localhost", *given}))
