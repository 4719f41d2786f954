"""Builds the wheels for images: the project's wheel, and that of PySpark.

The package index only has a source distribution of PySpark, of half a gigabyte. Its wheel is built once, and serves two
images and all later builds. Both wheels are pure Python, so they do not depend on the Python version of this machine.
The image with the compiled core builds the project's wheel itself.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from images.builder.errors import BuildError

EPOCH: Final = "1704067200"
"""Modification time of all files in the wheels, so that builds are reproducible."""


def spark_version(constraints: str) -> str:
    """Return the version of PySpark from the text of constraints.txt. Raises `BuildError` if it is missing."""
    match = re.search(r"^pyspark==(\S+)$", constraints, re.MULTILINE)
    if match is None:
        raise BuildError("constraints.txt has no line pyspark==VERSION.")
    return match.group(1)


def requirements(pyproject: str, extras: Iterable[str]) -> list[str]:
    """Return the requirements of the project with these extras, from the text of pyproject.toml."""
    project = tomllib.loads(pyproject)["project"]
    optional = [line for extra in extras for line in project["optional-dependencies"][extra]]
    return sorted({*project["dependencies"], *optional})


def project_wheel(root: Path, folder: Path, log: Path) -> None:
    """Build the project's wheel in pure Python. Other content of `folder` is deleted."""
    shutil.rmtree(folder, ignore_errors=True)
    _pip_wheel(["--no-deps", str(root)], folder, log, {"ODRADEK_COMPILE": "0"})


def spark_wheel(version: str, folder: Path, log: Path) -> None:
    """Build or download PySpark's wheel of this version, unless `folder` has it."""
    if not list(folder.glob(f"pyspark-{version}-*.whl")):
        shutil.rmtree(folder, ignore_errors=True)
        _pip_wheel(["--no-deps", f"pyspark=={version}"], folder, log)


def _pip_wheel(arguments: list[str], folder: Path, log: Path, environment: Mapping[str, str] | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--wheel-dir", str(folder)]
    with log.open("ab") as file:
        made = subprocess.run(
            [*command, *arguments],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH, **(environment or {})},
            check=False,
        )
    if made.returncode:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-10:]
        raise BuildError(f"pip could not build a wheel; the end of its log {log}:\n  " + "\n  ".join(lines))
