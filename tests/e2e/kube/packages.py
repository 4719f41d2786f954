"""Debian packages under the cluster: containerd, runc, plugins and small tools.

Enters: the table of `versions`. Leaves: a machine that has them, or a sentence that says what to install.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from kube.host import HarnessError, LongRun, run_long
from kube.versions import DEBIAN_PACKAGES


def missing(exists: Callable[[str], bool]) -> tuple[str, ...]:
    """Packages whose sign is not there; `exists` knows programs and files."""
    return tuple(package for package, sign in DEBIAN_PACKAGES if not exists(sign))


def _exists(sign: str) -> bool:
    if sign.startswith("/"):
        return Path(sign).exists()
    return shutil.which(sign, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is not None


def ensure(say: Callable[[str], None]) -> None:
    """Install what is missing, where this is root on a Debian; else raise `HarnessError` with the command to run."""
    if os.geteuid() != 0:
        raise HarnessError("a cluster of its own needs root; or set KUBECONFIG to a cluster that is there")
    packages = missing(_exists)
    if not packages:
        return
    if shutil.which("apt-get") is None:
        raise HarnessError(f"install these (names of Debian): {' '.join(packages)}")
    say(f"installing {' '.join(packages)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # One apt at a time may run: another one on this machine is waited for. What it broke off is mended first.
    apt = ["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=600"]
    for command in (
        [*apt, "update"],
        [*apt, "--fix-broken", "install"],
        [*apt, "install", "--no-install-recommends", *packages],
    ):
        run_long(command, what=" ".join(command), say=say, options=LongRun(environment=environment))
    if left := missing(_exists):
        raise HarnessError(f"still missing after apt-get install: {' '.join(left)}")
