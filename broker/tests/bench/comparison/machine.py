"""Describes the type of the machine and the versions on it, without names and paths."""

from __future__ import annotations

import os
import platform
import re
import ssl
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Final

from odradek.base.build_form import build_form

KAFKA_VERSION: Final = "3.9.1"
_GIBIBYTE: Final = 1 << 30
_WRITTEN: Final = ("docs/benchmarks.md", "broker/tests/bench/results.json")
"""Files that the benchmark writes after each scenario."""


def description() -> str:
    """Return architecture, processors and memory."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / _GIBIBYTE
    return f"{platform.system()} {platform.machine()}, {_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB"


def _processor() -> str:
    found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return found.group(1).strip() if found else "unknown processor"


def versions(root: Path) -> dict[str, str]:
    """Return the versions of both systems and of what they use."""
    return {
        "Odradek": f"{version('odradek')} ({_commit(root)}, {build_form()} core)",
        "Apache Kafka": KAFKA_VERSION,
        "Python": platform.python_version(),
        "OpenSSL": ssl.OPENSSL_VERSION.split()[1],
        "Java": _java(),
        "librdkafka": version("confluent-kafka"),
    }


def _commit(root: Path) -> str:
    """Return the commit, with "-dirty" if files other than those of the benchmark have changed."""
    commit = _git(root, "describe", "--always")
    changed = _git(
        root, "status", "--porcelain", "--untracked-files=no", "--", ".", *(f":!{each}" for each in _WRITTEN)
    )
    return f"{commit}-dirty" if changed else commit or "no commit"


def _git(root: Path, *arguments: str) -> str:
    found = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False, timeout=30)
    return found.stdout.strip()


def _java() -> str:
    output = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True, timeout=30).stderr
    found = re.search(r'"([^"]+)"', output)
    return found.group(1) if found else "unknown"
