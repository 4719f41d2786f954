"""What heartbeats, departures and removals change in a consumer group."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from odradek.base.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InvalidRegularExpressionError,
    InvalidRequestError,
    ProtocolError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
)
from odradek.coordinator.groups.consumer.consumer_rules import check_commit, preferred_assignor
from odradek.coordinator.groups.consumer.consumer_values import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    NEW_GROUP,
    ClassicMetadata,
    ClassicProtocol,
    ConsumerGroupSettings,
    ConsumerMember,
    ReconciliationState,
)
from odradek_testkit.consumer_groups.consumer_rules_lab import REBALANCE_MS, RulesLab
from odradek_testkit.consumer_groups.fake_topics import FakeTopics


def lab_of(**partition_counts: int) -> RulesLab:
    return RulesLab(FakeTopics(**partition_counts))


def pair(partitions: int = 4, **fields: Any) -> RulesLab:
    """A group with the members a and b, each of which has half of the topic t."""
    lab = lab_of(t=partitions)
    lab.join("a", "t", **fields)
    lab.join("b", "t")
    lab.settle("a", "b")
    return lab


# Joining


def test_the_first_member_gets_everything_at_once() -> None:
    lab = lab_of(t=3, other=1)
    result = lab.join("a", "t", "missing", client_id="c", client_host="/h", rack_id="r", assignor="range")
    assert (result.member_id, result.epoch, lab.named(result.assignment)) == ("a", 1, {"t": {0, 1, 2}})
    assert (lab.state.epoch, lab.state.assignment_epoch) == (1, 1)
    assert lab.state.topics == {"t": lab.topics.shape("t")}
    assert lab.state.target == {"a": {lab.topics.id("t"): {0, 1, 2}}}
    assert lab.member("a") == ConsumerMember(
        member_id="a",
        rack_id="r",
        client_id="c",
        client_host="/h",
        topics=frozenset({"t", "missing"}),
        rebalance_timeout_ms=REBALANCE_MS,
        assignor="range",
        epoch=1,
        assigned={lab.topics.id("t"): frozenset({0, 1, 2})},
    )


def test_a_member_may_join_without_topics() -> None:
    lab = lab_of(t=3)
    result = lab.join("a")
    assert (result.epoch, result.assignment) == (1, {})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"rebalance_timeout_ms": None}, "rebalance timeout"),
        ({"owned": None}, "empty list of partitions"),
        ({"owned": {FakeTopics(t=1).id("t"): frozenset({0})}}, "empty list of partitions"),
        ({"topics": None}, "topic names or a regular expression"),
        ({"instance_id": " "}, "instance id"),
        ({"rack_id": ""}, "rack id"),
    ],
)
def test_the_first_heartbeat_must_be_complete(fields: dict[str, Any], reason: str) -> None:
    lab = lab_of(t=1)
    with pytest.raises(InvalidRequestError, match=reason):
        lab.join("a", "t", **fields)
    assert lab.state is NEW_GROUP


@pytest.mark.parametrize(("member_id", "epoch", "reason"), [("", 1, "member id"), ("a", -3, "-3"), ("a", -2, "-2")])
def test_invalid_epochs_and_ids(member_id: str, epoch: int, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        lab_of().heartbeat(member_id, epoch)


def test_a_full_group_refuses_new_members_only() -> None:
    lab = RulesLab(FakeTopics(t=2), max_size=1)
    lab.join("a", "t", instance_id="i")
    with pytest.raises(GroupMaxSizeReachedError):
        lab.join("b", "t")
    assert lab.join("a", "t", instance_id="i").epoch == 1
    lab.leave("a", "i", LEAVE_STATIC_EPOCH)
    assert lab.join("c", "t", instance_id="i").epoch == 1


def test_an_assignor_must_be_supported() -> None:
    lab = lab_of(t=1)
    with pytest.raises(UnsupportedAssignorError, match="uniform, range"):
        lab.join("a", "t", assignor="sticky")


# Reconciliation over several heartbeats


def test_partitions_move_after_their_owner_has_revoked_them() -> None:
    lab = lab_of(t=4)
    lab.join("a", "t")
    joined = lab.join("b", "t")
    assert (joined.epoch, joined.assignment) == (2, {})
    assert lab.member("b").state is ReconciliationState.UNRELEASED_PARTITIONS

    told = lab.heartbeat("a", 1)
    assert told.epoch == 1
    kept = lab.named(told.assignment)
    assert len(kept["t"]) == 2
    assert lab.member("a").state is ReconciliationState.UNREVOKED_PARTITIONS
    assert lab.heartbeat("a", 1).assignment is None, "nothing new, and nothing revoked yet"
    assert lab.heartbeat("b", 2).assignment is None

    done = lab.heartbeat("a", 1, owned=told.assignment)
    assert (done.epoch, done.assignment) == (2, None)
    gained = lab.heartbeat("b", 2)
    assert lab.named(gained.assignment) == {"t": {0, 1, 2, 3} - kept["t"]}
    assert lab.member("b").state is ReconciliationState.STABLE


def test_a_quiet_heartbeat_changes_nothing() -> None:
    lab = pair()
    before = lab.state
    result = lab.heartbeat("a", 2)
    assert (result.epoch, result.assignment) == (2, None)
    assert lab.state is before


def test_a_full_heartbeat_gets_the_assignment() -> None:
    lab = pair()
    before = lab.state
    member = lab.member("a")
    result = lab.heartbeat("a", 2, rebalance_timeout_ms=REBALANCE_MS, topics=member.topics, owned=member.assigned)
    assert result.assignment == member.assigned
    assert lab.state is before


def test_other_fields_are_updated_without_a_new_epoch() -> None:
    lab = pair()
    lab.heartbeat("a", 2, rack_id="r2", rebalance_timeout_ms=7, client_id="c2", client_host="/h2", assignor="range")
    member = lab.member("a")
    assert (member.rack_id, member.rebalance_timeout_ms, member.assignor) == ("r2", 7, "range")
    assert (member.client_id, member.client_host, lab.state.epoch) == ("c2", "/h2", 2)


# Epochs


def test_unknown_members() -> None:
    with pytest.raises(UnknownMemberIdError):
        lab_of().heartbeat("a", 1)
    lab = pair()
    with pytest.raises(UnknownMemberIdError):
        lab.heartbeat("c", 1)
    with pytest.raises(UnknownMemberIdError):
        lab.heartbeat("a", 2, instance_id="i")


@pytest.mark.parametrize("epoch", [1, 3])
def test_other_epochs_are_fenced(epoch: int) -> None:
    lab = pair()
    before = lab.state
    with pytest.raises(FencedMemberEpochError, match=f"2, not {epoch}"):
        lab.heartbeat("b", epoch, owned={})
    assert lab.state is before


def test_the_previous_epoch_is_accepted_because_the_response_may_be_lost() -> None:
    lab = pair()
    member = lab.member("a")
    assert (member.epoch, member.previous_epoch) == (2, 1)
    with pytest.raises(FencedMemberEpochError):
        lab.heartbeat("a", 1)
    with pytest.raises(FencedMemberEpochError):
        lab.heartbeat("a", 1, owned={lab.topics.id("t"): frozenset(range(4))})
    result = lab.heartbeat("a", 1, owned=member.assigned)
    assert (result.epoch, result.assignment) == (2, member.assigned)


def test_a_lost_response_to_a_join_is_repeated() -> None:
    lab = lab_of(t=2)
    first = lab.join("a", "t", instance_id="i")
    before = lab.state
    assert lab.join("a", "t", instance_id="i") == first
    assert lab.state is before


def test_a_fenced_member_joins_again_with_its_partitions() -> None:
    lab = pair()
    assigned = lab.member("a").assigned
    result = lab.join("a", "t")
    assert (result.epoch, result.assignment) == (2, assigned)


def test_joining_again_completes_a_revocation() -> None:
    lab = lab_of(t=4)
    lab.join("a", "t")
    lab.join("b", "t")
    lab.heartbeat("a", 1)
    assert lab.member("a").revoking
    assert lab.join("a", "t").epoch == 2
    assert not lab.member("a").revoking


# Static members


def test_a_static_member_that_comes_back_keeps_its_assignment() -> None:
    lab = lab_of(t=4)
    lab.join("a", "t", instance_id="i")
    lab.join("b", "t")
    lab.settle("a", "b")
    assigned, epoch = lab.member("a").assigned, lab.state.epoch
    left = lab.leave("a", "i", LEAVE_STATIC_EPOCH)
    assert (left.member_id, left.epoch, left.assignment) == ("a", -2, None)
    assert lab.member("a").epoch == LEAVE_STATIC_EPOCH
    assert lab.heartbeat("b", 2).assignment is None, "its partitions wait"

    back = lab.join("a2", "t", instance_id="i")
    assert (back.epoch, back.assignment) == (2, assigned)
    assert lab.state.members.keys() == lab.state.target.keys() == {"a2", "b"}
    assert lab.state.epoch == epoch, "nobody else is disturbed"
    with pytest.raises(FencedInstanceIdError):
        lab.heartbeat("a", 2, instance_id="i")
    with pytest.raises(UnknownMemberIdError):
        lab.heartbeat("a", 2)


def test_a_static_member_that_comes_back_with_other_topics_changes_the_group() -> None:
    lab = lab_of(t=2, u=1)
    lab.join("a", "t", instance_id="i")
    lab.leave("a", "i", LEAVE_STATIC_EPOCH)
    back = lab.join("a2", "u", instance_id="i")
    assert (back.epoch, lab.named(back.assignment), lab.state.epoch) == (2, {"u": {0}}, 2)


def test_an_instance_id_is_released_by_leaving_only() -> None:
    lab = lab_of(t=2)
    lab.join("a", "t", instance_id="i")
    with pytest.raises(UnreleasedInstanceIdError, match="'a'"):
        lab.join("b", "t", instance_id="i")


def test_a_member_that_is_away_cannot_send_heartbeats() -> None:
    lab = lab_of(t=2)
    lab.join("a", "t", instance_id="i")
    lab.leave("a", "i", LEAVE_STATIC_EPOCH)
    with pytest.raises(FencedMemberEpochError):
        lab.heartbeat("a", 1, instance_id="i", owned={})


def test_a_static_member_that_is_away_revokes_at_once() -> None:
    lab = lab_of(t=4)
    lab.join("a", "t", instance_id="i")
    lab.join("b", "t")
    lab.heartbeat("a", 1, instance_id="i")
    assert lab.member("a").revoking
    lab.leave("a", "i", LEAVE_STATIC_EPOCH)
    assert len(lab.named(lab.heartbeat("b", 2).assignment)["t"]) == 2


# Leaving


def test_a_member_leaves() -> None:
    lab = pair()
    result = lab.leave("b")
    assert (result.member_id, result.epoch, result.assignment) == ("b", LEAVE_EPOCH, None)
    assert lab.state.members.keys() == lab.state.target.keys() == {"a"}
    assert (lab.state.epoch, lab.state.assignment_epoch) == (3, 2)
    assert lab.named(lab.heartbeat("a", 2).assignment) == {"t": {0, 1, 2, 3}}
    assert lab.state.assignment_epoch == 3


def test_a_static_member_leaves_for_good() -> None:
    lab = lab_of(t=2)
    lab.join("a", "t", instance_id="i")
    with pytest.raises(FencedInstanceIdError):
        lab.leave("b", "i")
    with pytest.raises(UnknownMemberIdError):
        lab.leave("a", "j")
    lab.leave("a", "i")
    assert lab.state.is_empty


def test_a_group_that_loses_all_members_is_empty_and_its_epoch_grows() -> None:
    lab = lab_of(t=2)
    lab.join("a", regex="t")
    lab.leave("a")
    assert lab.state == replace(NEW_GROUP, epoch=2, assignment_epoch=1)
    assert lab.join("b", "t").epoch == 3


def test_unknown_members_cannot_leave() -> None:
    with pytest.raises(UnknownMemberIdError):
        pair().leave("c")


def test_expired_members_are_removed_together() -> None:
    lab = pair()
    lab.join("c", "t")
    lab.remove("a", "c", "unknown")
    assert (lab.state.members.keys(), lab.state.epoch) == ({"b"}, 4)
    before = lab.state
    lab.remove("a")
    assert lab.state is before


# Subscriptions and topics


def test_a_changed_subscription_changes_the_target() -> None:
    lab = lab_of(t=2, u=2)
    lab.join("a", "t")
    result = lab.heartbeat("a", 1, topics=frozenset({"t", "u"}))
    assert (result.epoch, lab.named(result.assignment)) == (2, {"t": {0, 1}, "u": {0, 1}})
    assert lab.heartbeat("a", 2, topics=frozenset({"t", "u"})).epoch == 2


def test_a_topic_that_is_created_or_grows_is_assigned() -> None:
    lab = lab_of()
    lab.join("a", "t")
    lab.topics.create("t", 1)
    assert lab.heartbeat("a", 1).assignment is None, "the group has not heard of it"
    lab.topics_changed = True
    assert lab.named(lab.heartbeat("a", 1).assignment) == {"t": {0}}
    lab.topics.grow("t", 2)
    lab.topics_changed = True
    assert lab.named(lab.heartbeat("a", 2).assignment) == {"t": {0, 1}}


def test_a_deleted_topic_leaves_the_target() -> None:
    lab = lab_of(t=1, u=1)
    lab.join("a", "t", "u")
    lab.topics.delete("u")
    lab.topics_changed = True
    result = lab.heartbeat("a", 1)
    assert lab.named(result.assignment) == {"t": {0}}
    assert lab.state.topics.keys() == {"t"}
    assert lab.heartbeat("a", 1, owned=result.assignment).epoch == 2


def test_a_topic_that_is_created_again_has_other_partitions() -> None:
    lab = lab_of(t=1)
    lab.join("a", "t")
    lab.topics.create("t", 1)
    lab.topics_changed = True
    assert lab.heartbeat("a", 1).assignment == {}
    assert lab.named(lab.heartbeat("a", 1, owned={}).assignment) == {"t": {0}}


def test_other_topics_do_not_matter() -> None:
    lab = lab_of(t=1)
    lab.join("a", "t")
    lab.topics.create("u", 1)
    lab.topics_changed = True
    assert lab.heartbeat("a", 1).epoch == 1


def test_a_regular_expression_is_resolved_at_once() -> None:
    lab = lab_of(t1=1, t2=1, u=1)
    result = lab.join("a", regex="t.*", topics=None)
    assert lab.named(result.assignment) == {"t1": {0}, "t2": {0}}
    lab.topics.create("t3", 1)
    lab.topics_changed = True
    assert lab.named(lab.heartbeat("a", 1).assignment) == {"t1": {0}, "t2": {0}, "t3": {0}}
    ended = lab.heartbeat("a", 2, regex="", topics=frozenset({"u"}))
    assert ended.assignment == {}
    assert not lab.state.regexes
    assert lab.member("a").regex is None


def test_topics_that_the_client_may_not_see_do_not_match() -> None:
    lab = lab_of(t1=1, t2=1)
    lab.hidden.add("t2")
    assert lab.named(lab.join("a", regex="t.*").assignment) == {"t1": {0}}
    lab.hidden.clear()
    assert lab.heartbeat("a", 1).assignment is None
    lab.now_ms += lab.settings.regex_refresh_interval_ms
    assert lab.named(lab.heartbeat("a", 1).assignment) == {"t1": {0}, "t2": {0}}


def test_a_refresh_without_news_keeps_the_epoch() -> None:
    lab = lab_of(t1=1)
    lab.join("a", regex="t.*")
    lab.now_ms += lab.settings.regex_refresh_interval_ms
    lab.heartbeat("a", 1)
    assert (lab.state.epoch, lab.state.regexes["t.*"].resolved_ms) == (1, lab.now_ms)


def test_an_expression_without_a_result_in_the_log_is_resolved() -> None:
    lab = lab_of(t1=1)
    lab.join("a", regex="t.*")
    lab.put(replace(lab.state, regexes=MappingProxyType({}), topics=MappingProxyType({})))
    lab.heartbeat("a", 1)
    assert lab.state.regexes["t.*"].topics == {"t1"}


def test_an_invalid_expression_changes_nothing() -> None:
    lab = pair()
    before = lab.state
    with pytest.raises(InvalidRegularExpressionError):
        lab.heartbeat("a", 2, regex="(t")
    assert lab.state is before


# Assignors


def test_the_assignor_with_the_most_votes() -> None:
    def votes(*assignors: str | None) -> str:
        members = [ConsumerMember(member_id="", rebalance_timeout_ms=1, assignor=assignor) for assignor in assignors]
        return preferred_assignor(members, ConsumerGroupSettings(assignors=("range", "uniform")))

    assert votes() == votes(None) == "range"
    assert votes(None, None, "uniform") == "uniform"
    assert votes("uniform", "range", "uniform") == "uniform"
    assert votes("uniform", "range") == "range"
    assert votes("removed", "removed", "uniform") == "uniform"


# Commits


@pytest.mark.parametrize(
    ("member_id", "instance_id", "epoch", "error"),
    [
        ("a", "i", 2, None),
        ("a", None, 2, None),
        ("a", "i", 1, StaleMemberEpochError),
        ("a", "i", 3, StaleMemberEpochError),
        ("c", None, 2, UnknownMemberIdError),
        ("", None, -1, UnknownMemberIdError),
        ("c", "j", 2, UnknownMemberIdError),
        ("b", "i", 2, FencedInstanceIdError),
        ("old", "i", 2, FencedInstanceIdError),
    ],
)
def test_commits(member_id: str, instance_id: str | None, epoch: int, error: type[ProtocolError] | None) -> None:
    state = pair(instance_id="i").state
    if error is None:
        check_commit(state, member_id, instance_id, epoch)
    else:
        with pytest.raises(error):
            check_commit(state, member_id, instance_id, epoch)


def test_commits_without_members() -> None:
    check_commit(NEW_GROUP, "", None, -1)
    with pytest.raises(UnknownMemberIdError):
        check_commit(NEW_GROUP, "a", None, 1)
    check_commit(pair().state, "", None, -1, is_transactional=True)


def test_commits_of_classic_members() -> None:
    lab = pair()
    classic = ClassicMetadata(session_timeout_ms=1, protocols=(ClassicProtocol("range", b""),))
    members = {**lab.state.members, "a": replace(lab.member("a"), classic=classic)}
    lab.put(replace(lab.state, members=MappingProxyType(members)))
    check_commit(lab.state, "a", None, 2)
    with pytest.raises(IllegalGenerationError):
        check_commit(lab.state, "a", None, 1)


def test_a_classic_member_may_go_over_to_the_new_protocol() -> None:
    lab = pair(instance_id="i")
    classic = ClassicMetadata(session_timeout_ms=1, protocols=(ClassicProtocol("range", b""),))
    members = {**lab.state.members, "a": replace(lab.member("a"), classic=classic)}
    lab.put(replace(lab.state, members=MappingProxyType(members)))
    assigned = lab.member("a").assigned
    result = lab.join("a2", "t", instance_id="i")
    assert result.assignment == assigned
    assert lab.member("a2").classic is None
