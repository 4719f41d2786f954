"""How a consumer group looks to clients."""

from __future__ import annotations

from odradek.coordinator.groups.consumer.consumer_values import LEAVE_STATIC_EPOCH, NEW_GROUP, ConsumerGroupSettings
from odradek.coordinator.groups.consumer.consumer_views import describe, listing, phase
from odradek_testkit.consumer_groups.consumer_rules_lab import RulesLab
from odradek_testkit.consumer_groups.fake_topics import FakeTopics


def test_phases() -> None:
    lab = RulesLab(FakeTopics(t=2))
    assert phase(NEW_GROUP) == "Empty"
    lab.join("a", "t", instance_id="i")
    assert phase(lab.state) == "Stable"
    lab.join("b", "t")
    assert phase(lab.state) == "Reconciling"
    lab.settle("a", "b")
    assert phase(lab.state) == "Stable"
    lab.leave("a", "i", LEAVE_STATIC_EPOCH)
    assert phase(lab.state) == "Reconciling"
    lab.remove("a")
    assert phase(lab.state) == "Assigning"
    lab.leave("b")
    assert phase(lab.state) == "Empty"


def test_listing() -> None:
    listed = listing("g", NEW_GROUP)
    assert (listed.group_id, listed.state) == ("g", "Empty")
    assert (listed.protocol_type, listed.group_type) == ("consumer", "consumer")


def test_description() -> None:
    lab = RulesLab(FakeTopics(t=2))
    lab.join("a", "t", assignor="range")
    lab.join("b", "t")
    group = describe("g", lab.state, lab.settings)
    assert (group.group_id, group.state, group.epoch, group.assignment_epoch) == ("g", "Reconciling", 2, 2)
    assert group.assignor == "range"
    assert [(found.member, found.target) for found in group.members] == [
        (lab.member(name), lab.state.target[name]) for name in ("a", "b")
    ]
    assert describe("g", NEW_GROUP, ConsumerGroupSettings()).assignor == "uniform"
