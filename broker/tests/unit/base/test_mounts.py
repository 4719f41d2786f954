"""The mount table: which file system contains a path, and which file systems are remote."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base import system_ports
from odradek.base.errors import StorageError
from odradek.base.mounts import Mount, device_number, is_remote, parse_mounts, type_at
from odradek.base.system_ports import SystemFiles

TABLE = r"""
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
30 22 0:25 / /proc rw - proc proc rw
40 22 0:41 / /data/with\040space rw,relatime shared:7 master:1 - nfs4 server:/export rw,vers=4.2
41 22 0:42 /a/b /data/bound rw shared:9 propagate_from:2 unbindable - fuse.sshfs me@host:/ rw
42 41 0:43 / /data/bound/inner rw - xfs /dev/sdb rw
43 22 0:44 / /data/twice rw - autofs systemd-1 rw
44 43 0:45 / /data/twice rw - cifs //server/share rw
garbage
45 22 0:46 / /cut rw
46 22 0:47 / /cut rw -
"""

SUBVOLUME = "0:99"
"""A device number that no mount of the tables has."""

paths = st.lists(
    st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1), max_size=4
).map(lambda names: "/" + "/".join(names))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", "ext4"),
        ("/data", "ext4"),
        ("/data/with space", "nfs4"),
        ("/data/with space/topic-0", "nfs4"),
        ("/data/with space and more", "ext4"),
        ("/data/bound", "fuse.sshfs"),
        ("/data/bound/x", "fuse.sshfs"),
        ("/data/bound/inner/x", "xfs"),
        ("/data/twice/x", "cifs"),
        ("/cut", "ext4"),
    ],
)
def test_without_its_device_the_longest_mount_point_and_the_last_mount_there_decide(path: str, expected: str) -> None:
    assert type_at(path, SUBVOLUME, parse_mounts(TABLE)) == expected


HIDDEN = """
22 1 254:0 / / rw - ext4 /dev/vda rw
40 22 0:41 / /data/kafka rw - nfs4 server:/export rw
41 40 0:42 / /data/kafka rw - xfs /dev/sdb rw
42 22 254:0 /disks/a /data rw - ext4 /dev/vda rw
"""


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        pytest.param("254:0", "ext4", id="a folder in the last mount, which hides the parent folder of the others"),
        pytest.param("0:42", "xfs", id="the second mount at the same mount point, before its parent was hidden"),
        pytest.param("0:41", "nfs4", id="the first one, by a path that is not hidden"),
        pytest.param(SUBVOLUME, "xfs", id="unknown device"),
    ],
)
def test_the_device_decides_although_mounts_hide_each_other(device: str, expected: str) -> None:
    assert type_at("/data/kafka/logs", device, parse_mounts(HIDDEN)) == expected


def test_nothing_is_known_without_a_table() -> None:
    assert parse_mounts("") == []
    assert type_at("/data", "254:0", []) is None
    assert type_at("/data", "254:0", [Mount("0:9", "/other", "ext4")]) is None


def test_a_device_number_has_the_form_of_the_mount_table() -> None:
    assert device_number(os.makedev(254, 0)) == "254:0"
    assert device_number(os.makedev(0, 70_000)) == "0:70000"


@given(paths, st.lists(st.sampled_from(["shared:1", "master:2", "unbindable"]), max_size=3), paths)
def test_every_mount_point_is_read_as_the_kernel_writes_it(point: str, optional: list[str], below: str) -> None:
    """The kernel writes space, tab, newline, backslash and the number sign as three octal digits."""
    written = "".join(f"\\{ord(char):03o}" if char in " \t\n\\#" else char for char in point)
    line = " ".join(["36", "35", "0:9", "/", written, "rw,noatime", *optional, "-", "nfs", "server:/", "rw"])
    mounts = parse_mounts(f"22 1 254:0 / / rw - ext4 /dev/vda rw\n{line}\n")
    assert mounts == [Mount("254:0", "/", "ext4"), Mount("0:9", point, "nfs")]
    assert type_at(point.rstrip("/") + below, SUBVOLUME, mounts) == "nfs"


@given(
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from(["/", "/a", "/a/b", "/a/b/c", "/x"])), max_size=8),
    st.integers(0, 6),
    paths,
)
def test_the_path_matters_only_if_no_mount_has_the_device(
    mounted: list[tuple[int, str]], minor: int, path: str
) -> None:
    """Each file system has a type of its own here. Its mounts, also bind mounts, hide others or are hidden."""
    mounts = [Mount(f"0:{device}", point, f"type-{device}") for device, point in mounted]
    found = type_at(path, f"0:{minor}", mounts)
    if any(device == minor for device, _ in mounted):
        assert found == f"type-{minor}"
    else:
        assert found == type_at(path, SUBVOLUME, mounts)


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        *((name, True) for name in ("fuse", "fuse.glusterfs", "fuseblk", "virtiofs", "nfs", "nfs4", "cifs", "smb3")),
        *((name, True) for name in ("9p", "ceph", "afs", "lustre")),
        *((name, False) for name in ("ext4", "xfs", "btrfs", "tmpfs", "overlay", "fusectl", "nfsd", "zfs", "")),
    ],
)
def test_file_systems_that_wait_for_a_server_are_remote(type_: str, expected: bool) -> None:
    assert is_remote(type_) is expected


class TestSystemFiles:
    """`SystemFiles.remote_type` with a mount table of the test."""

    @pytest.fixture
    def table(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A file that replaces the mount table of this process; it does not exist yet."""
        made = tmp_path / "mountinfo"
        monkeypatch.setattr(system_ports, "MOUNT_TABLE", made)
        return made

    def test_nothing_of_a_remote_file_is_in_memory(self, table: Path, tmp_path: Path) -> None:
        table.write_text("22 1 0:9 / / rw - nfs4 server:/ rw\n", encoding="utf-8")
        files = SystemFiles()
        before = files.open(f"{tmp_path}/before", create=True)
        assert files.remote_type(str(tmp_path)) == "nfs4"
        file = files.open(f"{tmp_path}/a", create=True)
        file.pwritev((b"hello",), 0)
        assert (before.is_remote, file.is_remote) == (False, True)
        assert file.pread(5, 0) == b"hello"
        assert file.pread_now(5, 0) is None
        assert not file.pread_into(bytearray(5), 5, 0)
        assert file.pread_now(0, 0) == b""

    def test_a_copy_for_a_worker_process_knows_the_remote_devices(self, table: Path, tmp_path: Path) -> None:
        table.write_text("22 1 0:9 / / rw - nfs4 server:/ rw\n", encoding="utf-8")
        files = SystemFiles()
        files.remote_type(str(tmp_path))
        copy: SystemFiles = pickle.loads(pickle.dumps(files))
        assert copy.open(f"{tmp_path}/a", create=True).is_remote
        assert not SystemFiles().open(f"{tmp_path}/a").is_remote

    def test_the_target_of_a_symbolic_link_decides(self, table: Path, tmp_path: Path) -> None:
        real, link = tmp_path / "real", tmp_path / "link"
        real.mkdir()
        link.symlink_to(real)
        row = f"22 1 0:9 / {real.resolve()} rw - fuse.s3 s3 rw\n"
        table.write_text("1 0 0:1 / / rw - ext4 /dev/vda rw\n" + row, encoding="utf-8")
        assert SystemFiles().remote_type(str(link)) == "fuse.s3"
        assert SystemFiles().remote_type(str(tmp_path)) is None

    def test_the_device_of_the_directory_decides(self, table: Path, tmp_path: Path) -> None:
        device = device_number(tmp_path.stat().st_dev)
        hiding = f"23 1 0:9 / {tmp_path.resolve()} rw - nfs4 server:/ rw\n"
        table.write_text(f"22 1 {device} / / rw - ext4 /dev/vda rw\n{hiding}", encoding="utf-8")
        assert SystemFiles().remote_type(str(tmp_path)) is None
        table.write_text(f"22 1 {device} / /elsewhere rw - ceph server:/ rw\n{hiding}", encoding="utf-8")
        assert SystemFiles().remote_type(str(tmp_path)) == "ceph"

    def test_without_a_table_everything_is_local(self, table: Path, tmp_path: Path) -> None:
        files = SystemFiles()
        assert not table.exists()
        assert files.remote_type(str(tmp_path)) is None
        assert not files.open(f"{tmp_path}/a", create=True).is_remote
        with pytest.raises(StorageError):
            files.remote_type(f"{tmp_path}/missing")


def test_the_device_of_proc_is_in_the_mount_table_of_this_machine() -> None:
    mounts = parse_mounts(os.fsdecode(system_ports.MOUNT_TABLE.read_bytes()))
    assert type_at("/proc", device_number(os.stat("/proc").st_dev), mounts) == "proc"
