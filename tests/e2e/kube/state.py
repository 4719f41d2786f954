"""The record of a run, stored where the next run finds it: its folder, owner, tag and processes.

Every module that creates or removes parts of a cluster uses `Run`. Invariants: the owner is written before anything
else is created; /run/odradek-e2e/<tag> points to the folder as long as anything that carries the tag may exist; both
are changed only under the lock of the registry.
"""

from __future__ import annotations

import json
import re
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kube.binaries import locked
from kube.host import HarnessError, Process, alive, read_process, spawn, this_process
from kube.network import Plan, namespace

REGISTRY: Final = Path("/run/odradek-e2e")
FOLDER_PREFIX: Final = "odradek-e2e-"
TAG: Final = re.compile(r"^(odk[0-9a-f]{4})-")


def new_tag() -> str:
    """A random tag. It is short because names of links have at most 15 characters."""
    return f"odk{secrets.token_hex(2)}"


def tag_of(name: str) -> str | None:
    """The tag in the name of a link, a namespace or a control group. None if the name has no tag of a run."""
    found = TAG.match(name)
    return found.group(1) if found else None


def registry_lock() -> AbstractContextManager[None]:
    """The lock that is held while leftovers are removed and while a tag and addresses are chosen."""
    return locked(REGISTRY / "lock")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One cluster of this machine, running or abandoned."""

    folder: Path
    tag: str
    slot: int
    nodes: int

    @property
    def plan(self) -> Plan:
        """The addresses of the cluster."""
        return Plan(slot=self.slot)

    @property
    def numbers(self) -> range:
        """The numbers of the nodes, from 1."""
        return range(1, self.nodes + 1)

    @property
    def pki(self) -> Path:
        """The folder of keys, certificates and kubeconfigs."""
        return self.folder / "pki"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.pki / "admin.conf"

    @property
    def audit_log(self) -> Path:
        """The audit log: one JSON event per line for each request to the API server."""
        return self.folder / "audit.log"

    @property
    def processes(self) -> Path:
        """The folder with one file per daemon, which has the daemon's name."""
        return self.folder / "processes"

    def node(self, number: int) -> Path:
        """The folder of one node."""
        return self.folder / f"node{number}"

    def log(self, name: str) -> Path:
        """The file with the outputs of a daemon."""
        return self.folder / "logs" / f"{name}.log"

    def start(self, name: str, machine: str, *arguments: str | Path) -> Process:
        """Start a daemon on a machine and record its process."""
        process = spawn(arguments, log=self.log(name), namespace=namespace(self.tag, machine))
        (self.processes / name).write_text(process.line(), encoding="utf-8")
        return process

    def process(self, name: str) -> Process | None:
        """The daemon of this name if it still runs, else None."""
        process = read_process(self.processes / name)
        return process if alive(process) else None

    def owned_by(self, process: Process) -> None:
        """Record the owner of the run. The run counts as abandoned as soon as this process has ended."""
        _write(self.folder / "owner", process.line())


def _write(path: Path, text: str) -> None:
    """Write a file atomically: a reader sees the old text or the new one, never a part of it."""
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.rename(path)


def create(nodes: int, name: str | None, plan: Plan) -> Run:
    """Create the folder of a new run, owned by this process. The caller holds the lock of the registry."""
    tag = new_tag()
    while (REGISTRY / tag).is_symlink():
        tag = new_tag()
    folder = named_folder(name) if name else Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
    if name:
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError as error:
            raise HarnessError(f"a cluster called {name} is there already: take it down first") from error
    run = Run(folder=folder, tag=tag, slot=plan.slot, nodes=nodes)
    run.owned_by(this_process())
    _write(folder / "run.json", json.dumps({"tag": tag, "slot": plan.slot, "nodes": nodes}))
    (REGISTRY / tag).symlink_to(folder)
    for part in (run.pki, run.processes, folder / "logs"):
        part.mkdir()
    return run


def named_folder(name: str) -> Path:
    """The folder of a cluster that a person started. Raise `HarnessError` if the name is invalid."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,30}", name):
        raise HarnessError(f"{name!r} is no name: use small letters, digits and dashes")
    return Path(tempfile.gettempdir()) / f"{FOLDER_PREFIX}{name}"


def load(folder: Path) -> Run | None:
    """The run of a folder. None if the folder is missing, or if the run died before its record was complete."""
    try:
        content = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return Run(folder=folder, tag=content["tag"], slot=content["slot"], nodes=content["nodes"])


def is_owned(folder: Path) -> bool:
    """Return whether the owner of a run still runs."""
    return alive(read_process(folder / "owner"))


def registered() -> dict[str, Path]:
    """The folder of every run that is not removed yet, by tag. The folder itself may be gone."""
    if not REGISTRY.is_dir():
        return {}
    return {path.name: path.readlink() for path in REGISTRY.iterdir() if path.is_symlink()}


def folders() -> Iterator[Path]:
    """The folders of runs in the usual place. They survive a reboot, while the registry does not."""
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*")):
        if (path / "owner").is_file():
            yield path


def live_slots() -> tuple[int, ...]:
    """The slots, and so the addresses, of other runs."""
    runs = [load(folder) for folder in registered().values()]
    return tuple(run.slot for run in runs if run is not None)
