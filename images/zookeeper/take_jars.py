"""take_jars.py WHEELS TARGET: extracts the jars of a ZooKeeper server from PySpark's wheel, about 30 of 270.

It runs in the build stage. The list of the jars comes from the project's wheel, which must be installed.
"""

from __future__ import annotations

import sys
import zipfile
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from odradek_operator.ensemble.java import CLASS_PATH

OTHER_SYSTEMS = ("*-osx-*", "*-windows-*", "*-kqueue*", "netty-codec-http*", "netty-handler-proxy*", "netty-*-dns-*")
"""Jars of Netty that are not needed: for other systems than Linux, and for protocols that ZooKeeper does not use."""


def wanted(name: str) -> bool:
    """Whether a file of the wheel is a jar for the class path."""
    path = PurePosixPath(name)
    if path.parent.as_posix() != "pyspark/jars" or any(fnmatch(path.name, pattern) for pattern in OTHER_SYSTEMS):
        return False
    return any(fnmatch(path.name, pattern) for pattern in CLASS_PATH)


def main(wheels: str, target: str) -> None:
    """Write the jars to `target`. Raises `SystemExit`, with a message, if there are none."""
    found = sorted(Path(wheels).glob("pyspark-*.whl"))
    if not found:
        raise SystemExit(f"{wheels} has no wheel of PySpark.")
    folder = Path(target)
    folder.mkdir(parents=True)
    with zipfile.ZipFile(found[-1]) as wheel:
        names = [name for name in wheel.namelist() if wanted(name)]
        for name in names:
            (folder / PurePosixPath(name).name).write_bytes(wheel.read(name))
    if not any(PurePosixPath(name).name.startswith("zookeeper-") for name in names):
        raise SystemExit(f"{found[-1].name} has no jars of ZooKeeper.")


if __name__ == "__main__":
    main(*sys.argv[1:])
