"""Debian packages that the cluster needs: containerd, runc, plugins and small tools.

Installs the packages in the table of `versions`, or raises an error that says what to install.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from kube.host import HarnessError, LongRun, run_long
from kube.versions import DEBIAN_PACKAGES


def missing(exists: Callable[[str], bool]) -> tuple[str, ...]:
    """The packages that are not installed. `exists` checks for the program or file that a package installs."""
    return tuple(package for package, sign in DEBIAN_PACKAGES if not exists(sign))


def _exists(sign: str) -> bool:
    if sign.startswith("/"):
        return Path(sign).exists()
    return shutil.which(sign, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is not None


def ensure(say: Callable[[str], None]) -> None:
    """Install missing packages if this is root on Debian. Otherwise raise `HarnessError` with the command to run."""
    if os.geteuid() != 0:
        raise HarnessError("starting a cluster needs root; or set KUBECONFIG to an existing cluster")
    packages = missing(_exists)
    if not packages:
        return
    if shutil.which("apt-get") is None:
        raise HarnessError(f"install these (names of Debian): {' '.join(packages)}")
    say(f"installing {' '.join(packages)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # Only one apt can run at a time: wait for any other on this machine. First repair what an interrupted apt left.
    apt = ["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=600"]
    for command in (
        [*apt, "update"],
        [*apt, "--fix-broken", "install"],
        [*apt, "install", "--no-install-recommends", *packages],
    ):
        run_long(command, what=" ".join(command), say=say, options=LongRun(environment=environment))
    if left := missing(_exists):
        raise HarnessError(f"still missing after apt-get install: {' '.join(left)}")
