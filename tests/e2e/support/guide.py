"""Runs commands of `docs/kubernetes.md` unchanged.

Finds the first block of shell commands in a section and returns its output. The commands call `kubectl` and name no
cluster: a script with that name is first on the PATH and adds the cluster and the namespace under test.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from odradek_testkit.interop.guides import fenced_blocks
from support.kubectl import Kubectl

ROOT: Final = Path(__file__).resolve().parents[3]
GUIDE: Final = ROOT / "docs" / "kubernetes.md"
_SECONDS: Final = 900.0


def commands(section: str, containing: str = "") -> str:
    """The first block of shell commands below the heading `## section` that contains a text.

    Raises `LookupError` if there is none.
    """
    text = GUIDE.read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    blocks = fenced_blocks(found.group(1), "sh") if found else []
    chosen = next((block for block in blocks if containing in block), None)
    if chosen is None:
        which = f"commands with {containing!r}" if containing else "commands"
        raise LookupError(f"{GUIDE.name} has no {which} in a section {section!r}")
    return chosen


def run_guide(kubectl: Kubectl, section: str, containing: str = "") -> str:
    """Run these commands in the namespace of `kubectl` and return their output.

    Raises `AssertionError` with their output if one fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "kubectl"
        words = [kubectl.program, "--kubeconfig", str(kubectl.kubeconfig), "--namespace", kubectl.namespace]
        script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands(section, containing)],
            cwd=ROOT,
            env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    assert done.returncode == 0, f"the guide's section {section!r}: {done.stdout}{done.stderr}"
    return done.stdout
