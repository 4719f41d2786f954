"""helm as a library.

Installs releases of a chart from its folder and values. Used by the tests that install the operator.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_CALL_SECONDS: Final = 600.0


class HelmError(Exception):
    """helm failed. The text is its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A release of this cluster. A healthy release has the `status` `deployed`."""

    name: str
    namespace: str
    revision: int
    status: str
    chart: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Helm:
    """Commands for one cluster."""

    program: str
    kubeconfig: Path

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        """Run a command and return its standard output. Raise `HelmError` if it fails."""
        command = [self.program, "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=_CALL_SECONDS)
        if done.returncode != 0:
            raise HelmError(f"helm {' '.join(arguments)}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def install(self, name: str, chart: Path, *, namespace: str, values: Mapping[str, Any] | None = None) -> None:
        """Install or upgrade a chart and wait until its pods are ready."""
        self.run(
            "upgrade", name, str(chart), "--install", "--namespace", namespace, "--create-namespace", "--wait",
            "--timeout=5m", "--values=-", stdin=json.dumps(dict(values or {})),
        )  # fmt: skip

    def uninstall(self, name: str, *, namespace: str) -> None:
        """Remove a release, if it exists, and wait until its objects are gone."""
        self.run("uninstall", name, "--namespace", namespace, "--ignore-not-found", "--wait")

    def template(self, name: str, chart: Path, *, namespace: str, values: Mapping[str, Any] | None = None) -> str:
        """Render a chart to YAML without installing it."""
        given = json.dumps(dict(values or {}))
        return self.run("template", name, str(chart), "--namespace", namespace, "--values=-", stdin=given)

    def lint(self, chart: Path) -> str:
        """Check a chart. Raise `HelmError` if it has errors or warnings."""
        return self.run("lint", "--strict", str(chart))

    def releases(self, *, namespace: str) -> tuple[Release, ...]:
        """The releases in a namespace."""
        listed = json.loads(self.run("list", "--all", "--namespace", namespace, "--output=json"))
        return tuple(
            Release(
                name=entry["name"],
                namespace=entry["namespace"],
                revision=int(entry["revision"]),
                status=entry["status"],
                chart=entry["chart"],
            )
            for entry in listed
        )
