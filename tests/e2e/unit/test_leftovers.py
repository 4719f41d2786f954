"""Tests that everything that belongs to a run is found, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kube import cgroups, leftovers, state
from kube.host import HarnessError, Process, this_process

TABLE = """\
22 1 254:0 / / rw - ext4 /dev/vda rw
30 22 0:5 / /tmp/odradek-e2e-a rw shared:7 - tmpfs tmpfs rw
31 30 0:6 / /tmp/odradek-e2e-a/node1/kubelet/a\\040b rw - tmpfs tmpfs rw
32 22 0:7 / /tmp/odradek-e2e-ab rw - tmpfs tmpfs rw
33 31 0:8 / /tmp/odradek-e2e-a/node1/kubelet/a\\040b/c rw - overlay overlay rw
"""


def test_mounts_of_a_folder_come_last_mounted_first_and_without_those_of_its_namesakes() -> None:
    inner = "/tmp/odradek-e2e-a/node1/kubelet/a b"

    found = leftovers.mount_points(TABLE, Path("/tmp/odradek-e2e-a"))

    assert found == [f"{inner}/c", inner, "/tmp/odradek-e2e-a"]


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("odk12ab-node1", "odk12ab"),
        ("odk12ab-br", "odk12ab"),
        ("odk12ab", None),
        ("odk12abc-br", None),
        ("docker0", None),
        ("kb-br", None),
    ],
)
def test_only_our_own_names_carry_a_tag(name: str, tag: str | None) -> None:
    assert state.tag_of(name) == tag


def test_new_tags_are_recognised() -> None:
    tag = state.new_tag()

    assert state.tag_of(f"{tag}-cp") == tag


@pytest.mark.parametrize("name", ["", "../x", "A", "a/b", "-a", "a" * 40])
def test_a_name_cannot_lead_out_of_the_temporary_folder(name: str) -> None:
    with pytest.raises(HarnessError, match="is no name"):
        state.named_folder(name)


def test_a_run_is_owned_while_its_owner_runs(tmp_path: Path) -> None:
    run = state.Run(folder=tmp_path, tag="odk0000", slot=250, nodes=1)
    assert not state.is_owned(tmp_path)

    run.owned_by(this_process())
    assert state.is_owned(tmp_path)

    run.owned_by(Process(pid=os.getpid(), started=1))
    assert not state.is_owned(tmp_path)


def test_a_folder_without_a_description_is_no_run(tmp_path: Path) -> None:
    assert state.load(tmp_path) is None


def test_groups_of_a_node_are_not_those_of_its_namesakes(tmp_path: Path) -> None:
    for controller in ("cpu", "memory"):
        for group in ("", "odk0001-node1", "odk0001-node10", "odk0001-node1/pod", "odk0002-node1"):
            (tmp_path / controller / group).mkdir(parents=True, exist_ok=True)
        (tmp_path / controller / "cgroup.procs").touch()

    assert [path.name for path in cgroups.groups_of("odk0001-node1", tmp_path)] == ["odk0001-node1"] * 2
    assert [path.name for path in cgroups.groups_of("odk0001", tmp_path)] == ["odk0001-node1", "odk0001-node10"] * 2
    assert len(cgroups.tagged_groups(tmp_path)) == 6
    cgroups.remove_groups("odk0001", tmp_path)
    assert {path.name for path in cgroups.tagged_groups(tmp_path)} == {"odk0002-node1"}


def test_new_groups_get_the_processors_of_their_parent(tmp_path: Path) -> None:
    hierarchy = tmp_path / "cpuset"
    hierarchy.mkdir()
    for name, text in {
        "cgroup.procs": "",
        "cgroup.clone_children": "0",
        "cpuset.cpus": "0-1",
        "cpuset.mems": "0",
    }.items():
        (hierarchy / name).write_text(text, encoding="utf-8")

    cgroups.make_groups("odk0001-node1", tmp_path)

    assert (hierarchy / "odk0001-node1" / "cpuset.cpus").read_text(encoding="utf-8") == "0-1"
