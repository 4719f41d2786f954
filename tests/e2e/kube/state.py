"""What a run is, written down where the next run finds it: a folder, its owner, its tag, its processes.

Enters: a folder's files. Leaves: `Run`. Called by every module that makes or removes parts of a cluster. Invariants:
the owner is written before anything else is made; /run/odradek-e2e/<tag> leads to the folder as long as anything that
carries the tag may exist; both are changed only under the lock of the registry.
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
    """Short, for names of links have at most 15 characters."""
    return f"odk{secrets.token_hex(2)}"


def tag_of(name: str) -> str | None:
    """The tag in the name of a link, a namespace or a control group; None if it is none of ours."""
    found = TAG.match(name)
    return found.group(1) if found else None


def registry_lock() -> AbstractContextManager[None]:
    """Held while leftovers are swept and while a tag and addresses are chosen."""
    return locked(REGISTRY / "lock")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One cluster of this machine, alive or left behind."""

    folder: Path
    tag: str
    slot: int
    nodes: int

    @property
    def plan(self) -> Plan:
        """Its addresses."""
        return Plan(slot=self.slot)

    @property
    def numbers(self) -> range:
        """Its nodes, from 1."""
        return range(1, self.nodes + 1)

    @property
    def pki(self) -> Path:
        """Keys, certificates, kubeconfigs."""
        return self.folder / "pki"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's way in."""
        return self.pki / "admin.conf"

    @property
    def audit_log(self) -> Path:
        """One JSON event a line for each request to the API server."""
        return self.folder / "audit.log"

    @property
    def processes(self) -> Path:
        """A file for each daemon, named by it."""
        return self.folder / "processes"

    def node(self, number: int) -> Path:
        """What one node keeps."""
        return self.folder / f"node{number}"

    def log(self, name: str) -> Path:
        """Outputs of a daemon."""
        return self.folder / "logs" / f"{name}.log"

    def start(self, name: str, machine: str, *arguments: str | Path) -> Process:
        """Start a daemon on a machine and write it down."""
        process = spawn(arguments, log=self.log(name), namespace=namespace(self.tag, machine))
        (self.processes / name).write_text(process.line(), encoding="utf-8")
        return process

    def process(self, name: str) -> Process | None:
        """The daemon of this name if it still runs."""
        process = read_process(self.processes / name)
        return process if alive(process) else None

    def owned_by(self, process: Process) -> None:
        """The run is left behind as soon as this process is gone."""
        _write(self.folder / "owner", process.line())


def _write(path: Path, text: str) -> None:
    """A reader sees the old text or the new one, never half of it."""
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.rename(path)


def create(nodes: int, name: str | None, plan: Plan) -> Run:
    """Make the folder of a new run, owned by this process; the registry's lock is held by the caller."""
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
    """The folder of a cluster that a person started."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,30}", name):
        raise HarnessError(f"{name!r} is no name: use small letters, digits and dashes")
    return Path(tempfile.gettempdir()) / f"{FOLDER_PREFIX}{name}"


def load(folder: Path) -> Run | None:
    """The run of a folder; None if there is none, or if it died before it could say what it is."""
    try:
        said = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return Run(folder=folder, tag=said["tag"], slot=said["slot"], nodes=said["nodes"])


def is_owned(folder: Path) -> bool:
    """Whether the owner of a run still runs."""
    return alive(read_process(folder / "owner"))


def registered() -> dict[str, Path]:
    """Folder by tag of every run that has not been taken down; the folder may be gone."""
    if not REGISTRY.is_dir():
        return {}
    return {path.name: path.readlink() for path in REGISTRY.iterdir() if path.is_symlink()}


def folders() -> Iterator[Path]:
    """Folders of runs in the usual place, which outlive a boot while the registry does not."""
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*")):
        if (path / "owner").is_file():
            yield path


def live_slots() -> tuple[int, ...]:
    """Addresses that other runs have chosen."""
    runs = [load(folder) for folder in registered().values()]
    return tuple(run.slot for run in runs if run is not None)
