"""When an ensemble member may start without data, tested with the files that ZooKeeper finds at its start."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek_operator.objects import names
from odradek_operator.objects.properties_file import render
from odradek_operator.pod.member_files import EPOCHS, INITIALIZE, SNAPSHOTS
from odradek_operator.pod.zookeeper_pod import MemberOptions, prepare

pytestmark = pytest.mark.java
"""Sets the Java version, on which the command depends."""

ENVIRONMENT = {
    "CLUSTER": "demo",
    "POD_NAME": "demo-zookeeper-1",
    "POD_NAMESPACE": "events",
    "ENSEMBLE_REPLICAS": "3",
}
GUARD = "db.autocreate=false"


def prepared(folder: Path, state: str | None) -> tuple[bool, bool]:
    """Return whether the member may start without data, and whether members without data must not vote."""
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


def test_a_member_of_a_new_ensemble_starts_without_data(tmp_path: Path) -> None:
    assert prepared(tmp_path, names.FORMING) == (True, True)


@pytest.mark.parametrize("state", [names.FORMED, "", "nonsense"])
def test_a_member_of_an_ensemble_that_has_served_does_not_start_without_data(tmp_path: Path, state: str) -> None:
    assert prepared(tmp_path, state) == (False, True)


@pytest.mark.parametrize("file", ["snapshot.0", "log.100000001"])
def test_a_member_with_data_needs_no_permission(tmp_path: Path, file: str) -> None:
    folder = tmp_path / "data" / SNAPSHOTS
    folder.mkdir(parents=True)
    for name in (file, *EPOCHS):
        (folder / name).touch()
    assert prepared(tmp_path, names.FORMING) == (False, True)
    assert {path.name for path in folder.iterdir()} == {file, *EPOCHS}


def test_a_permission_that_was_not_used_is_withdrawn(tmp_path: Path) -> None:
    prepared(tmp_path, names.FORMING)
    assert prepared(tmp_path, names.FORMED) == (False, True)


def test_files_of_an_attempt_to_join_are_removed_if_the_ensemble_is_new(tmp_path: Path) -> None:
    folder = tmp_path / "data" / SNAPSHOTS
    folder.mkdir(parents=True)
    for name in EPOCHS:
        (folder / name).touch()
    assert prepared(tmp_path, names.FORMING) == (True, True)
    assert list(folder.iterdir()) == []


def test_an_operator_of_an_earlier_version_restricts_no_member(tmp_path: Path) -> None:
    assert prepared(tmp_path, None) == (False, False)
