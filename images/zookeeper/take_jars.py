"""take_jars.py WHEELS TARGET: the jars of a ZooKeeper server out of PySpark's wheel, about thirty of 270.

Runs in the image's build stage, in the environment with the project's wheel, which says which jars those are.
"""

from __future__ import annotations

import sys
import zipfile
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from odradek_operator.ensemble.java import CLASS_PATH

OTHER_SYSTEMS = ("*-osx-*", "*-windows-*", "*-kqueue*", "netty-codec-http*", "netty-handler-proxy*", "netty-*-dns-*")
"""Netty's libraries for other systems than Linux, and protocols that ZooKeeper does not speak."""


def wanted(name: str) -> bool:
    """Whether a file of the wheel is a jar of the class path."""
    path = PurePosixPath(name)
    if path.parent.as_posix() != "pyspark/jars" or any(fnmatch(path.name, pattern) for pattern in OTHER_SYSTEMS):
        return False
    return any(fnmatch(path.name, pattern) for pattern in CLASS_PATH)


def main(wheels: str, target: str) -> None:
    """Write the jars to `target`; without any, end with a sentence."""
    found = sorted(Path(wheels).glob("pyspark-*.whl"))
    if not found:
        raise SystemExit(f"There is no wheel of PySpark in {wheels}.")
    folder = Path(target)
    folder.mkdir(parents=True)
    with zipfile.ZipFile(found[-1]) as wheel:
        names = [name for name in wheel.namelist() if wanted(name)]
        for name in names:
            (folder / PurePosixPath(name).name).write_bytes(wheel.read(name))
    if not any(PurePosixPath(name).name.startswith("zookeeper-") for name in names):
        raise SystemExit(f"{found[-1].name} has no jar of ZooKeeper.")


if __name__ == "__main__":
    main(*sys.argv[1:])
