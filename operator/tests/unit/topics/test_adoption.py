"""Adoption of an existing topic: the resource keeps the topic's settings, and later removes only those that it set."""

from __future__ import annotations

import dataclasses
from uuid import UUID

import pytest

from odradek_operator.crds import Cluster, Deletion, Drift
from odradek_operator.topics import topic_decisions as topics
from odradek_operator.topics.topic_actions import (
    DeleteTopic,
    ForgetOwnership,
    Ownership,
    RecordOwnership,
    SetConfig,
)
from odradek_operator.topics.topic_plan import Wanted
from odradek_operator.topics.zookeeper_state import ObservedOwnership

from .topic_states import TWO, desired, record, snapshot

KEPT_FOR_EVER = {"retention.ms": "-1", "segment.bytes": "100"}


def test_adopting_a_topic_removes_no_setting_and_moves_no_replica() -> None:
    """The default retention would delete records that are meant to be kept."""
    resource = desired(replicas=None)
    decision = topics.decide(resource, snapshot(TWO, config=KEPT_FOR_EVER, owned=None), brokers=3)
    (action,) = decision.actions
    assert isinstance(action, RecordOwnership)
    assert action.ownership.preserved == {*KEPT_FOR_EVER}
    assert decision.adopted == ("retention.ms=-1", "segment.bytes=100"), "the status reports what the resource lacks"
    wanted = Wanted(cluster=Cluster(name="demo"), topics={"orders": resource})
    assert topics.wanted_factors(wanted, snapshot(TWO, config=KEPT_FOR_EVER, owned=None)) == {}


def test_adopting_sets_what_the_resource_lists_and_keeps_the_rest() -> None:
    state = snapshot(TWO, config=KEPT_FOR_EVER, owned=None)
    (action,) = topics.decide(desired(segment_bytes="200"), state, brokers=3).actions
    assert isinstance(action, SetConfig)
    assert action.config == {"retention.ms": "-1", "segment.bytes": "200"}
    assert action.reason == "segment.bytes changes from 100 to 200"
    expected = Ownership(
        resource="", owned=frozenset({"segment.bytes"}), preserved=frozenset({"retention.ms"}), version=None
    )
    assert action.ownership == expected


@pytest.mark.parametrize("drift", Drift)
def test_a_key_that_the_resource_set_once_and_lists_no_longer_is_removed(drift: Drift) -> None:
    state = snapshot(TWO, config=KEPT_FOR_EVER, owned={"segment.bytes"}, preserved={"retention.ms"})
    (action,) = topics.decide(dataclasses.replace(desired(), drift=drift), state, brokers=3).actions
    assert isinstance(action, SetConfig)
    assert action.config == {"retention.ms": "-1"}
    assert action.reason == "segment.bytes is removed (was 100)"
    assert (action.ownership.owned, action.ownership.preserved) == (frozenset(), {"retention.ms"})


def test_a_preserved_key_that_the_resource_lists_is_its_own_from_then_on() -> None:
    state = snapshot(TWO, config=KEPT_FOR_EVER, preserved=KEPT_FOR_EVER)
    (action,) = topics.decide(desired(retention_ms="-1"), state, brokers=3).actions
    assert isinstance(action, RecordOwnership), "its value is the wanted one already"
    assert (action.ownership.owned, action.ownership.preserved) == ({"retention.ms"}, {"segment.bytes"})


@pytest.mark.parametrize(
    "known",
    [
        record(KEPT_FOR_EVER, topic_id=UUID(int=7)),
        record(KEPT_FOR_EVER, resource="another uid"),
        ObservedOwnership(record=None, version=5),
    ],
    ids=["of an earlier topic", "of an earlier resource", "not understood"],
)
def test_a_record_that_does_not_speak_of_this_topic_and_resource_removes_nothing(known: ObservedOwnership) -> None:
    state = dataclasses.replace(snapshot(TWO, config=KEPT_FOR_EVER), ownership={"orders": known})
    (action,) = topics.decide(desired(), state, brokers=3).actions
    assert isinstance(action, RecordOwnership)
    assert action.ownership.preserved == {*KEPT_FOR_EVER}
    assert action.ownership.version == 5, "it is replaced"


def test_the_record_goes_with_its_topic_or_its_resource() -> None:
    state = snapshot(TWO, owned={"retention.ms"})
    (deleted,) = topics.decide_removed(dataclasses.replace(desired(), deletion=Deletion.DELETE), state).actions
    assert isinstance(deleted, DeleteTopic)
    assert deleted.ownership_version == 5
    (forgotten,) = topics.decide_removed(desired(), state).actions
    assert isinstance(forgotten, ForgetOwnership)
    assert forgotten.version == 5
