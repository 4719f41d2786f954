"""Tells from the mount table of Linux which file systems wait for a server, such as NFS and FUSE.

Python cannot ask `statfs` for the type of a file system. `base/system_ports` reads the table of its process,
`/proc/self/mountinfo` (proc_pid_mountinfo(5)), and this module interprets it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

REMOTE_TYPES: Final = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "fuse",
        "fuseblk",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "orangefs",
        "prl_fs",
        "pvfs2",
        "smb3",
        "smbfs",
        "vboxsf",
        "virtiofs",
        "wekafs",
    }
)
"""Types of file systems whose calls wait for another machine, the host of a virtual machine, or a process."""

DEVICE_FIELD: Final = 2
POINT_FIELD: Final = 4
FIRST_OPTIONAL_FIELD: Final = 6

_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{2})")


class Mount(NamedTuple):
    """A mount: the device number of its file system as `MAJOR:MINOR`, its mount point, and the type of the file
    system, such as `ext4` or `fuse.sshfs`."""

    device: str
    point: str
    type: str


def parse_mounts(content: str) -> list[Mount]:
    """Return the mounts in a mount table, in its order. Ignores lines that have another format."""
    mounts = []
    for line in content.split("\n"):
        fields = line.split(" ")
        try:
            # A variable number of optional fields ends with a hyphen. The type follows.
            end = fields.index("-", FIRST_OPTIONAL_FIELD)
            type_ = _unescaped(fields[end + 1])
            mounts.append(Mount(fields[DEVICE_FIELD], _unescaped(fields[POINT_FIELD]), type_))
        except (ValueError, IndexError):
            continue
    return mounts


def _unescaped(text: str) -> str:
    """Return a field without the octal escapes of space, tab, newline, backslash and others."""
    return _ESCAPE.sub(lambda escape: chr(int(escape[1], 8)), text)


def device_number(st_dev: int) -> str:
    """Return the device number that `stat` reports in the form of the mount table."""
    return f"{os.major(st_dev)}:{os.minor(st_dev)}"


def type_at(path: str, device: str, mounts: Iterable[Mount]) -> str | None:
    """Return the type of the file system that contains a path, which is absolute and has no symbolic links.

    `device` is the device number of the path. All mounts with this number are mounts of the same file system, whatever
    else is or was mounted at their mount points.

    Files in a subvolume of btrfs, and files of some stacked file systems, have a device number that the table does not
    contain. Then the longest mount point that contains the path decides, and the last mount there. A later mount at one
    of its parent folders can hide it, so the result may be wrong in this case. None if no mount point contains the
    path.
    """
    longest, found = -1, None
    for mounted, point, type_ in mounts:
        if mounted == device:
            return type_
        prefix = point.rstrip("/")
        if len(prefix) >= longest and (path + "/").startswith(prefix + "/"):
            longest, found = len(prefix), type_
    return found


def is_remote(type_: str) -> bool:
    """Whether a file system of this type waits for a server. The part after a dot names the program behind FUSE."""
    return type_.split(".", 1)[0] in REMOTE_TYPES
