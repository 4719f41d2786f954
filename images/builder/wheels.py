"""The wheels that image builds are handed: the project's own, and PySpark's.

PySpark comes from the index as half a gigabyte of source; made a wheel once, it serves two images and all later builds.
Both are pure Python, so that the Python of this machine need not be that of the images.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from images.builder.errors import BuildError

EPOCH: Final = "1704067200"
"""The time that all files of the wheel carry, so that equal sources make equal bytes."""


def spark_version(constraints: str) -> str:
    """The version of PySpark in the text of constraints.txt."""
    match = re.search(r"^pyspark==(\S+)$", constraints, re.MULTILINE)
    if match is None:
        raise BuildError("constraints.txt says no version of pyspark.")
    return match.group(1)


def requirements(pyproject: str, extras: Iterable[str]) -> list[str]:
    """What the project needs with these extras, from the text of pyproject.toml."""
    project = tomllib.loads(pyproject)["project"]
    optional = [line for extra in extras for line in project["optional-dependencies"][extra]]
    return sorted({*project["dependencies"], *optional})


def project_wheel(root: Path, folder: Path, log: Path) -> None:
    """Make the project's wheel, the only one in `folder` then."""
    shutil.rmtree(folder, ignore_errors=True)
    _pip_wheel(["--no-deps", str(root)], folder, log)


def spark_wheel(version: str, folder: Path, log: Path) -> None:
    """Make or fetch PySpark's wheel of this version, unless it is there."""
    if not list(folder.glob(f"pyspark-{version}-*.whl")):
        shutil.rmtree(folder, ignore_errors=True)
        _pip_wheel(["--no-deps", f"pyspark=={version}"], folder, log)


def _pip_wheel(arguments: list[str], folder: Path, log: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--wheel-dir", str(folder)]
    with log.open("ab") as file:
        made = subprocess.run(
            [*command, *arguments],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH},
            check=False,
        )
    if made.returncode:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-10:]
        raise BuildError(f"pip made no wheel; the end of its log {log}:\n  " + "\n  ".join(lines))
