"""Saves what explains the failure of a test: logs, events and objects.

Reads the cluster at the moment of the failure and writes files under `tests/e2e/.failed/<test>/`. Invariant: a file
says what could not be read, and such an error never hides the failure of the test.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from support.kubectl import Kubectl, KubectlError
from support.values import Pod

FOLDER: Final = Path(__file__).resolve().parents[1] / ".failed"
_TAIL_LINES: Final = 20_000
_OBJECTS: Final = (
    "nodes,persistentvolumes,persistentvolumeclaims,pods,services,endpointslices,statefulsets,deployments,"
    "poddisruptionbudgets,configmaps,jobs,leases"
)
_OWN_OBJECTS: Final = (
    "clusters.odradek.dev,topics.odradek.dev,users.odradek.dev,pipelines.odradek.dev,mirrors.odradek.dev"
)


def folder_of(test: str, parent: Path = FOLDER) -> Path:
    """The folder of a test, named after its node id."""
    return parent / re.sub(r"[^A-Za-z0-9._-]+", "-", test.removeprefix("tests/e2e/")).strip("-")


def keep(kubectl: Kubectl, test: str, daemons: Path | None = None) -> Path:
    """Write all diagnostics and return their folder.

    `daemons` is the folder with the logs of the cluster's own daemons.
    """
    folder = folder_of(test)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    everywhere = kubectl.within("")
    listings = {
        "pods.txt": ("get", "pods", "--all-namespaces", "--output=wide"),
        "events.txt": ("get", "events", "--all-namespaces", "--sort-by=.metadata.creationTimestamp"),
        "nodes.txt": ("describe", "nodes"),
        "objects.yaml": ("get", _OBJECTS, "--all-namespaces", "--output=yaml"),
        "odradek.yaml": ("get", _OWN_OBJECTS, "--all-namespaces", "--output=yaml"),
    }
    for name, arguments in listings.items():
        _write(folder / name, partial(everywhere.run, *arguments, seconds=60))
    with suppress(KubectlError):  # then logs cannot be read either, and pods.txt says why
        for pod in everywhere.pods():
            _keep_logs(kubectl.within(pod.namespace), pod, folder / "logs")
    if daemons is not None:
        shutil.copytree(daemons, folder / "daemons", ignore_dangling_symlinks=True)
    return folder


def _keep_logs(kubectl: Kubectl, pod: Pod, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for container in pod.containers:
        name = f"{pod.namespace}-{pod.name}-{container}"
        for previous in (False, True) if pod.restarts else (False,):
            _write(
                folder / f"{name}{'-previous' if previous else ''}.log",
                partial(kubectl.logs, pod.name, container, previous=previous, tail=_TAIL_LINES),
            )


def _write(path: Path, text: Callable[[], str]) -> None:
    try:
        path.write_text(text(), encoding="utf-8")
    except KubectlError as error:
        path.write_text(f"could not be had: {error}\n", encoding="utf-8")
