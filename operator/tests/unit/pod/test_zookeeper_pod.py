"""When a member of an ensemble may begin without data: the files that ZooKeeper finds at its start."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek_operator.objects import names
from odradek_operator.objects.properties_file import render
from odradek_operator.pod.member_files import EPOCHS, INITIALIZE, SNAPSHOTS
from odradek_operator.pod.zookeeper_pod import MemberOptions, prepare

pytestmark = pytest.mark.java
"""The command needs to know Java's version."""

ENVIRONMENT = {
    "CLUSTER": "demo",
    "POD_NAME": "demo-zookeeper-1",
    "POD_NAMESPACE": "events",
    "ENSEMBLE_REPLICAS": "3",
}
GUARD = "db.autocreate=false"


def prepared(folder: Path, state: str | None) -> tuple[bool, bool]:
    """Whether it may begin without data, and whether members without data are kept from voting."""
    data = folder / "data"
    properties = render({"dataDir": str(data), "clientPort": "2181"}, header="test")
    (folder / names.ZOOKEEPER_PROPERTIES).write_text(properties)
    if state is not None:
        (folder / names.ENSEMBLE_STATE).write_text(state)
    options = MemberOptions(
        properties=folder / names.ZOOKEEPER_PROPERTIES, folder=folder, metrics_host="127.0.0.1", metrics_port=0
    )
    prepare(options, ENVIRONMENT)
    return (data / INITIALIZE).exists(), GUARD in (folder / "zoo.cfg").read_text().splitlines()


def test_a_member_of_a_new_ensemble_begins_without_data(tmp_path: Path) -> None:
    assert prepared(tmp_path, names.FORMING) == (True, True)


@pytest.mark.parametrize("state", [names.FORMED, "", "nonsense"])
def test_a_member_of_an_ensemble_that_has_held_data_does_not(tmp_path: Path, state: str) -> None:
    assert prepared(tmp_path, state) == (False, True)


@pytest.mark.parametrize("file", ["snapshot.0", "log.100000001"])
def test_a_member_with_data_needs_no_leave(tmp_path: Path, file: str) -> None:
    folder = tmp_path / "data" / SNAPSHOTS
    folder.mkdir(parents=True)
    for name in (file, *EPOCHS):
        (folder / name).touch()
    assert prepared(tmp_path, names.FORMING) == (False, True)
    assert {path.name for path in folder.iterdir()} == {file, *EPOCHS}


def test_leave_that_was_not_used_is_withdrawn(tmp_path: Path) -> None:
    prepared(tmp_path, names.FORMING)
    assert prepared(tmp_path, names.FORMED) == (False, True)


def test_what_an_attempt_to_join_left_is_removed_when_the_ensemble_is_new_after_all(tmp_path: Path) -> None:
    folder = tmp_path / "data" / SNAPSHOTS
    folder.mkdir(parents=True)
    for name in EPOCHS:
        (folder / name).touch()
    assert prepared(tmp_path, names.FORMING) == (True, True)
    assert list(folder.iterdir()) == []


def test_under_an_operator_that_says_nothing_of_it_all_is_as_before(tmp_path: Path) -> None:
    assert prepared(tmp_path, None) == (False, False)
