"""Finds a recent Java, and the jars that a ZooKeeper server needs.

`embedded/zookeeper_process` gets a command and a class path from the environment and the folder in `--zookeeper-jars`,
or an `EmbeddedError` that says what is missing. It only runs `java -version`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from odradek_operator.errors import EmbeddedError

MINIMUM_JAVA: Final = 17
"""Required by Spark 4, whose jars are the default class path."""

_VERSION_TIMEOUT_SECONDS: Final = 30
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')

_NEEDED: Final = ("zookeeper-*.jar", "slf4j-api-*.jar")
"""Jars without which the server does not start. Those of the other patterns are used if they exist."""

CLASS_PATH: Final = (
    "zookeeper-[0-9]*.jar",
    "zookeeper-jute-*.jar",
    "slf4j-api-*.jar",
    "slf4j-simple-*.jar",
    "slf4j-reload4j-*.jar",
    "reload4j-*.jar",
    "log4j-*.jar",
    "logback-*.jar",
    "netty-*.jar",
    "snappy-java-*.jar",
    "metrics-core-*.jar",
    "commons-*.jar",
    "audience-annotations-*.jar",
)
"""A short class path: all 270 jars of a Spark distribution would add half a second to the start."""


def java_command() -> str:
    """Return the path of `java` from `JAVA_HOME` or `PATH`. Raises `EmbeddedError` if missing or older than Java 17."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if command is None:
        raise EmbeddedError(
            f"Java {MINIMUM_JAVA} or newer is needed to run ZooKeeper, but no `java` is on the PATH: "
            "install one or set JAVA_HOME."
        )
    try:
        answer = subprocess.run(
            [command, "-version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        origin = f"JAVA_HOME={home}" if home else "PATH"
        raise EmbeddedError(f"The Java of {origin} cannot be executed ({command}: {error}).") from error
    version = java_version(answer.stderr + answer.stdout)
    if version is None or version < MINIMUM_JAVA:
        found = "an unknown version" if version is None else f"Java {version}"
        raise EmbeddedError(
            f"Java {MINIMUM_JAVA} or newer is needed to run ZooKeeper, but {command} is {found}: "
            "install a newer one or set JAVA_HOME."
        )
    return command


def java_version(banner: str) -> int | None:
    """Return the feature release in the output of `java -version` (8 for `1.8.0_402`), or None."""
    match = _VERSION.search(banner)
    return int(match.group(1)) if match else None


def zookeeper_class_path(folder: Path | None) -> str:
    """Return the class path of a ZooKeeper server, from `folder` or the jars of the installed PySpark."""
    jars = folder if folder is not None else _pyspark_jars()
    if not jars.is_dir():
        raise EmbeddedError(f"The folder {jars} with ZooKeeper's jars does not exist: see --zookeeper-jars.")
    for pattern in _NEEDED:
        if not any(jars.glob(pattern)):
            raise EmbeddedError(f"The folder {jars} contains no {pattern}: set another folder with --zookeeper-jars.")
    found = sorted({str(path) for pattern in CLASS_PATH for path in jars.glob(pattern)})
    return os.pathsep.join(found)


def _pyspark_jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EmbeddedError(
            "ZooKeeper's jars are taken from PySpark, which is not installed: "
            "install odradek[spark] or set a folder of jars with --zookeeper-jars."
        )
    return Path(spec.origin).parent / "jars"
