"""Changes of a Cluster that an embedded cluster follows while it runs, and changes that it refuses."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from odradek_operator.crds import Brokers, Cluster, Listener, ZooKeeper
from odradek_operator.embedded.cluster_changes import accept, check_listeners
from odradek_operator.embedded.cluster_reconciler import PATIENCE_SECONDS, Waits
from odradek_operator.embedded.layout import ServedListeners
from odradek_operator.embedded.size_record import FILE_NAME, SizeRecord
from odradek_operator.errors import EmbeddedError
from odradek_operator.lifecycle.steps import Waiting

DEMO = Cluster(name="demo")
PLAIN, OUT = Listener(name="plain", port=9092), Listener(name="out", port=9192)


def test_brokers_and_listeners_follow() -> None:
    after = dataclasses.replace(DEMO, brokers=Brokers(replicas=5), listeners=(PLAIN, OUT))
    accepted = accept(DEMO, after)
    assert (accepted.cluster, accepted.notices) == (after, ())


@pytest.mark.parametrize("change", [{"name": "other"}, {"namespace": "other"}])
def test_another_cluster_is_refused(change: dict[str, str]) -> None:
    with pytest.raises(EmbeddedError, match="start another odradek up for it"):
        accept(DEMO, dataclasses.replace(DEMO, **change))  # type: ignore[arg-type]


def test_another_ensemble_is_not_used_and_the_rest_follows() -> None:
    moved = dataclasses.replace(DEMO, zookeeper=ZooKeeper(connect="zk:2181"), brokers=Brokers(replicas=4))
    accepted = accept(DEMO, moved)
    assert accepted.cluster == dataclasses.replace(moved, zookeeper=DEMO.zookeeper)
    (notice,) = accepted.notices
    assert notice.startswith("spec.zookeeper.connect is zk:2181, but the cluster keeps not set: another ensemble")


def test_settings_of_zookeeper_have_no_effect() -> None:
    changed = dataclasses.replace(DEMO, zookeeper=ZooKeeper(config={"tickTime": "5"}))
    assert "has no effect here" in accept(DEMO, changed).notices[0]


def test_an_edit_that_would_close_a_served_listener_is_refused() -> None:
    served = ServedListeners(first=PLAIN, further=(OUT,))
    with pytest.raises(EmbeddedError, match="its port is taken"):
        check_listeners(served, ServedListeners(first=PLAIN, left_out={"out": "its port is taken"}))
    check_listeners(served, ServedListeners(first=PLAIN))
    check_listeners(ServedListeners(first=PLAIN), ServedListeners(first=PLAIN, left_out={"new": "taken"}))


def waiting(message: str, *, needs_person: bool = False) -> Waiting:
    return Waiting(what="roll", reason="Why", message=message, needs_person=needs_person)


def test_what_waits_is_reported_once_and_what_passes_only_after_a_while() -> None:
    waits = Waits()
    brief, urgent = waiting("brief"), waiting("urgent", needs_person=True)
    assert waits.due((brief, urgent), 10.0) == [urgent]
    assert waits.due((brief, urgent), 10.0 + PATIENCE_SECONDS) == [brief]
    assert waits.due((brief, urgent), 100.0) == []
    assert waits.due((), 101.0) == []
    assert waits.due((urgent,), 102.0) == [urgent], "it came back"


def test_the_number_of_brokers_is_recorded(tmp_path: Path) -> None:
    record = SizeRecord(tmp_path)
    assert record.record.brokers is None
    record.set_brokers(4)
    record.set_brokers(3)
    assert SizeRecord(tmp_path).record.brokers == 3


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_damaged_record_says_what_to_do(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    with pytest.raises(EmbeddedError, match=r"members.json is damaged .*: remove it\."):
        SizeRecord(tmp_path)
