"""The mount table: which file system contains a path, and which file systems are remote."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base import system_ports
from odradek.base.errors import StorageError
from odradek.base.mounts import Mount, is_remote, parse_mounts, type_at
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
def test_the_longest_mount_point_and_the_last_mount_there_decide(path: str, expected: str) -> None:
    assert type_at(path, parse_mounts(TABLE)) == expected


def test_nothing_is_known_without_a_table() -> None:
    assert parse_mounts("") == []
    assert type_at("/data", []) is None
    assert type_at("/data", [Mount("/other", "ext4")]) is None


@given(paths, st.lists(st.sampled_from(["shared:1", "master:2", "unbindable"]), max_size=3), paths)
def test_every_mount_point_is_read_as_the_kernel_writes_it(point: str, optional: list[str], below: str) -> None:
    """The kernel writes space, tab, newline, backslash and the number sign as three octal digits."""
    written = "".join(f"\\{ord(char):03o}" if char in " \t\n\\#" else char for char in point)
    line = " ".join(["36", "35", "0:9", "/", written, "rw,noatime", *optional, "-", "nfs", "server:/", "rw"])
    mounts = parse_mounts(f"22 1 254:0 / / rw - ext4 /dev/vda rw\n{line}\n")
    assert mounts == [Mount("/", "ext4"), Mount(point, "nfs")]
    assert type_at(point.rstrip("/") + below, mounts) == "nfs"


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

    def test_the_target_of_a_symbolic_link_decides(self, table: Path, tmp_path: Path) -> None:
        real, link = tmp_path / "real", tmp_path / "link"
        real.mkdir()
        link.symlink_to(real)
        row = f"22 1 0:9 / {real.resolve()} rw - fuse.s3 s3 rw\n"
        table.write_text("1 0 0:1 / / rw - ext4 /dev/vda rw\n" + row, encoding="utf-8")
        assert SystemFiles().remote_type(str(link)) == "fuse.s3"
        assert SystemFiles().remote_type(str(tmp_path)) is None

    def test_without_a_table_everything_is_local(self, table: Path, tmp_path: Path) -> None:
        files = SystemFiles()
        assert not table.exists()
        assert files.remote_type(str(tmp_path)) is None
        assert not files.open(f"{tmp_path}/a", create=True).is_remote
        with pytest.raises(StorageError):
            files.remote_type(f"{tmp_path}/missing")
