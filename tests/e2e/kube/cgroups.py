"""Control groups of nodes. Each kubelet gets a separate root group, so that several kubelets can share one machine.

Creates and removes the groups of a node by its name. Supports both layouts of the kernel: a folder for each controller
(version 1) and one tree for all (version 2).
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from kube.host import until

ROOT: Final = Path("/sys/fs/cgroup")
_CONTROLLERS: Final = "+cpuset +cpu +io +memory +hugetlb +pids"
_DEADLINE_SECONDS: Final = 20.0


def hierarchies(root: Path = ROOT) -> tuple[Path, ...]:
    """The folders that hold top-level groups."""
    if (root / "cgroup.controllers").exists():
        return (root,)
    return tuple(sorted(path for path in root.iterdir() if (path / "cgroup.procs").exists() and not path.is_symlink()))


def groups_of(prefix: str, root: Path = ROOT) -> tuple[Path, ...]:
    """The top-level groups of a run (its tag) or of one node (`<tag>-node1`)."""
    return tuple(
        path
        for hierarchy in hierarchies(root)
        for path in sorted(hierarchy.glob(f"{prefix}*"))
        if path.name == prefix or path.name.startswith(f"{prefix}-")
    )


def tagged_groups(root: Path = ROOT) -> tuple[Path, ...]:
    """The groups of all runs, including those whose owner has died."""
    return tuple(path for hierarchy in hierarchies(root) for path in sorted(hierarchy.glob("odk*-node*")))


def make_groups(name: str, root: Path = ROOT) -> None:
    """Create the root group of a node. The kubelet expects it in every hierarchy."""
    for hierarchy in hierarchies(root):
        group = hierarchy / name
        group.mkdir(exist_ok=True)
        # A new cpuset has no processors and accepts no process until it gets the processors of its parent.
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (hierarchy / "cgroup.clone_children").exists() and (hierarchy / file).exists():
                (group / file).write_text((hierarchy / file).read_text(encoding="utf-8"), encoding="utf-8")
        if (group / "cgroup.subtree_control").exists() and (hierarchy / "cgroup.controllers").exists():
            _enable(hierarchy)
            _enable(group)


def _enable(group: Path) -> None:
    available = (group / "cgroup.controllers").read_text(encoding="utf-8").split()
    for word in _CONTROLLERS.split():
        if word.removeprefix("+") in available:
            with suppress(OSError):  # the kernel refuses some controllers in some places; the kubelet reports which
                (group / "cgroup.subtree_control").write_text(word, encoding="utf-8")


def remove_groups(prefix: str, root: Path = ROOT) -> None:
    """Remove groups, deepest first. The kernel needs a moment after the last process of a group has ended."""

    def gone() -> bool:
        for top in groups_of(prefix, root):
            below = sorted((path for path in top.rglob("*") if path.is_dir()), key=lambda path: -len(path.parts))
            for group in (*below, top):
                with suppress(OSError):
                    group.rmdir()
        return not groups_of(prefix, root)

    until(gone, what=f"removing the control groups of {prefix}", seconds=_DEADLINE_SECONDS)
