"""Removes a run, whether complete or partial, running or abandoned, and finds abandoned runs.

A run is given by its tag and its folder, of which either may be missing. Afterwards the machine has no processes,
mounts, namespaces, links, control groups or files of the run. This happens at the end of every run and, for dead runs,
before every new one. Invariants: removal is idempotent; it touches only what carries the tag or lies in the folder; it
deletes no file while anything is still mounted below it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from kube import network, state
from kube.cgroups import groups_of, remove_groups, tagged_groups
from kube.host import HarnessError, Process, identify, kill, read_process, reap, run, succeeds, until

_CNI_CACHES: Final = (Path("/var/lib/cni/results"), Path("/var/lib/cni/cache"))
_CONTAINER_LOGS: Final = Path("/var/log/containers")
_DEADLINE_SECONDS: Final = 30.0
_REMOVALS: Final = 5


def sweep(say: Callable[[str], None]) -> None:
    """Remove what dead runs left. Report a leftover that cannot be removed: it blocks no new run.

    New runs have other names and addresses. The caller holds the lock of the registry.
    """
    registered = state.registered()
    dead = {tag: folder for tag, folder in registered.items() if not state.is_owned(folder)}
    for folder in state.folders():
        if not state.is_owned(folder):
            left = state.load(folder)
            dead.setdefault(left.tag if left else f"unknown-{folder.name}", folder)
    for tag in _seen_tags() - set(registered):
        dead.setdefault(tag, Path("/nonexistent"))
    for tag, folder in sorted(dead.items()):
        say(f"removing what an earlier run left behind: {tag} in {folder}")
        try:
            demolish(tag, folder)
        except (HarnessError, OSError) as error:
            say(f"could not remove all of it: {error}")


def _seen_tags() -> set[str]:
    names = [*network.existing_namespaces(), *network.existing_links(), *(path.name for path in tagged_groups())]
    return {tag for tag in map(state.tag_of, names) if tag}


def demolish(tag: str, folder: Path) -> None:
    """End and remove everything of a run. Raise `HarnessError` if something cannot be removed. May be called again."""
    namespaces = [name for name in network.existing_namespaces() if name.startswith(f"{tag}-")]
    end_processes(lambda: [*_recorded(folder), *_inside(namespaces), *shims(folder), *in_groups(tag)])
    traces = [*_sockets(folder), *_cni_results(tag), *_log_links(folder)]
    unmount(folder)
    for name in namespaces:
        run(["ip", "netns", "del", name])
    for name in network.existing_links():
        if name.startswith(f"{tag}-"):
            # The kernel may already have removed this end together with the end in the namespace. That is no error.
            succeeds(["ip", "link", "del", name])
    remove_groups(tag)
    for path in traces:
        path.unlink(missing_ok=True)
    _remove(folder)
    (state.REGISTRY / tag).unlink(missing_ok=True)


def _remove(folder: Path) -> None:
    """Remove a folder. Retry when files disappear meanwhile: a lazy unmount may still remove some."""
    for _ in range(_REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
    shutil.rmtree(folder)


def end_processes(find: Callable[[], list[Process]]) -> None:
    """Kill the processes that `find` returns until it returns none: a dying kubelet may start another one."""

    def gone() -> bool:
        found = find()
        kill(found)
        reap()
        return not found

    until(gone, what="the end of the cluster's processes", seconds=_DEADLINE_SECONDS)


def _recorded(folder: Path) -> list[Process]:
    files = (folder / "processes").glob("*") if folder.is_dir() else ()
    found = [read_process(path) for path in files]
    return [process for process in found if process and identify(process.pid) == process]


def _inside(namespaces: Iterable[str]) -> list[Process]:
    """The processes in the network namespaces of a run, found even if the folder with the records is gone."""
    found = [identify(pid) for name in namespaces for pid in network.processes_in(name)]
    return [process for process in found if process]


def shims(folder: Path) -> list[Process]:
    """The shims of containerd, which outlive it. Each has the socket of its containerd in its arguments."""
    wanted = f"{folder}/"
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # the process ended meanwhile
            words = entry.read_bytes().decode(errors="replace").split("\0")
            if "containerd-shim" in words[0] and any(word.startswith(wanted) for word in words):
                found.append(identify(int(entry.parent.name)))
    return [process for process in found if process]


def in_groups(prefix: str) -> list[Process]:
    """The processes of containers: they are in the node's control groups, whatever their parent process is."""
    found: dict[int, Process] = {}
    for group in groups_of(prefix):
        for listing in (group / "cgroup.procs", *group.rglob("cgroup.procs")):
            with suppress(OSError):  # the group is gone, or is a threaded group without processes
                for word in listing.read_text(encoding="utf-8").split():
                    if process := identify(int(word)):
                        found[process.pid] = process
    return list(found.values())


def mount_points(table: str, folder: Path) -> list[str]:
    """Mount points below a folder from the text of /proc/self/mountinfo, the newest first."""
    found = []
    for line in table.splitlines():
        fields = line.split(" ")
        if len(fields) > 4:
            point = fields[4].encode().decode("unicode_escape")
            if point == str(folder) or point.startswith(f"{folder}/"):
                found.append(point)
    return found[::-1]


def unmount(folder: Path) -> None:
    """Lazily unmount everything below a folder. Raise `HarnessError` while anything is still mounted there."""

    def bare() -> bool:
        points = mount_points(Path("/proc/self/mountinfo").read_text(encoding="utf-8"), folder)
        for point in points:
            succeeds(["umount", "-l", point])
        return not points

    until(bare, what=f"unmounting everything below {folder}", seconds=_DEADLINE_SECONDS)


def shim_sockets(node: Path) -> list[Path]:
    """The sockets of a node's shims. They lie under /run/containerd, whatever containerd's configuration says."""
    found = []
    for file in node.glob("containerd/state/io.containerd.runtime.v2.task/*/*/address"):
        address = file.read_text(encoding="utf-8").strip()
        if address.startswith("unix:///run/containerd/s/"):
            found.append(Path(address.removeprefix("unix://")))
    return found


def _sockets(folder: Path) -> Iterable[Path]:
    for node in folder.glob("node*"):
        yield from shim_sockets(node)


def _cni_results(tag: str) -> Iterable[Path]:
    for cache in _CNI_CACHES:
        yield from cache.glob(f"{tag}-*")


def _log_links(folder: Path) -> Iterable[Path]:
    if _CONTAINER_LOGS.is_dir():
        for link in _CONTAINER_LOGS.iterdir():
            if link.is_symlink() and os.readlink(link).startswith(f"{folder}/"):
                yield link
