"""When the operator gives up the disk of a broker or member, and what prevents it."""

from __future__ import annotations

import dataclasses

import pytest

from odradek_operator.crds import Brokers, Cluster, Volume, ZooKeeper
from odradek_operator.lifecycle import release
from odradek_operator.lifecycle.lost import is_homeless
from odradek_operator.lifecycle.observed_cluster import LEADER, Claim, KubernetesState, Node, Pod, Quorum
from odradek_operator.lifecycle.steps import ReleaseClaims, Verdict
from odradek_operator.objects.names import Component
from odradek_operator.topics.zookeeper_state import Snapshot

from .world import World, make_world

NOW = 10_000.0
LOST_AT = NOW - 300.0


def seen(*isr: int, live: tuple[int, ...] = (0, 2)) -> Snapshot:
    """Return a snapshot without broker 1. One partition has replicas on all three brokers."""
    world: World = make_world({"orders": [(0, 1, 2)]})
    for broker in set(world.registered) - set(live):
        world.registered.discard(broker)
    world.controller = min(live, default=None)
    world.topics["orders"][0].isr = isr or (0, 2)
    found = world.snapshot()
    assert found is not None
    return found


def cluster(patience: int = 300, volumes: int = 1) -> Cluster:
    disks = tuple(Volume(id=number, size="1Gi") for number in range(volumes))
    return Cluster(name="demo", brokers=Brokers(replicas=3, volumes=disks, release_lost_after_seconds=patience))


def claim(name: str = "data-demo-kafka-1", nodes: tuple[str, ...] = ("gone",), **more: bool) -> Claim:
    flags = {"lost": False, "terminating": False} | more
    return Claim(name=name, uid=f"uid-of-{name}", volume="pv", nodes=nodes, **flags)


POD = Pod(
    name="demo-kafka-1",
    uid="u1",
    ordinal=1,
    node="bad",
    ready=False,
    terminating=False,
    restart_hash="a",
    phase="Running",
    trouble="",
    unscheduled_since=None,
    claims=("data-demo-kafka-1",),
)
PENDING = dataclasses.replace(POD, node=None, phase="Pending", unscheduled_since=LOST_AT)


def state(pod: Pod | None, *claims: Claim, bad_since: float = LOST_AT) -> KubernetesState:
    nodes = (
        Node(name="bad", ready=False, changed_at=bad_since),
        Node(name="worse", ready=False, changed_at=0.0),
        Node(name="good", ready=True, changed_at=0.0),
    )
    return KubernetesState(
        brokers={} if pod is None else {1: pod},
        claims={one.name: one for one in claims},
        nodes={node.name: node for node in nodes},
    )


def decide(observed: KubernetesState, snapshot: Snapshot | None = None, wanted: Cluster | None = None) -> Verdict:
    return release.brokers(wanted or cluster(), observed, snapshot or seen(), count=3, now=NOW)


def reason(verdict: Verdict) -> str:
    assert verdict.step is None
    (waiting,) = verdict.waiting
    assert waiting.what == "release"
    assert waiting.message.endswith(".")
    return waiting.reason


@pytest.mark.parametrize(
    ("pod", "nodes", "force"),
    [
        (POD, ("bad",), True),
        (dataclasses.replace(POD, terminating=True), ("bad",), True),
        (PENDING, ("bad",), False),
        (PENDING, ("gone",), False),
        (PENDING, ("gone", "worse"), False),
        (None, ("bad",), False),
    ],
)
def test_a_lost_disk_is_given_up(pod: Pod | None, nodes: tuple[str, ...], force: bool) -> None:
    verdict = decide(state(pod, claim(nodes=nodes)))
    assert verdict.step == ReleaseClaims(
        component=Component.KAFKA,
        ordinal=1,
        pod="demo-kafka-1",
        pod_uid=None if pod is None else "u1",
        claims={"data-demo-kafka-1": "uid-of-data-demo-kafka-1"},
        force=force,
        reason=f"the disk of broker 1 is lost with {', '.join(sorted(nodes))}, and everything on it is in sync "
        "elsewhere",
    )


@pytest.mark.parametrize(
    ("pod", "nodes"),
    [
        (dataclasses.replace(POD, node="good"), ("good",)),
        (dataclasses.replace(POD, node="good"), ("bad",)),
        # The pod cannot be scheduled for another reason, such as too little memory. Its disk is intact.
        (PENDING, ("good",)),
        (PENDING, ("bad", "good")),
        (PENDING, ()),
        (None, ("good",)),
        # The node is deleted, but it is unknown when. Kubernetes will delete the pod, and the next one will be Pending.
        (dataclasses.replace(POD, node="gone"), ("gone",)),
        (None, ("gone",)),
    ],
)
def test_a_disk_that_is_not_lost_or_not_known_to_be(pod: Pod | None, nodes: tuple[str, ...]) -> None:
    assert decide(state(pod, claim(nodes=nodes))) == Verdict()


def test_a_lost_claim_needs_no_patience() -> None:
    lost = claim(nodes=(), lost=True)
    assert isinstance(decide(state(PENDING, lost)).step, ReleaseClaims)
    well = dataclasses.replace(POD, node="good")
    assert isinstance(decide(state(well, lost)).step, ReleaseClaims)


@pytest.mark.parametrize(
    ("patience", "bad_since", "expected"),
    [(301, LOST_AT, "NodeLost"), (300, LOST_AT + 1, "NodeLost"), (0, 0.0, "ReleaseIsOff")],
)
def test_patience(patience: int, bad_since: float, expected: str) -> None:
    observed = state(POD, claim(nodes=("bad",)), bad_since=bad_since)
    assert reason(decide(observed, wanted=cluster(patience))) == expected


def test_a_disk_that_several_nodes_reach_is_lost_with_the_last_of_them() -> None:
    observed = state(PENDING, claim(nodes=("worse", "bad")), bad_since=LOST_AT + 1)
    assert reason(decide(observed)) == "NodeLost"


def test_a_broker_that_lives_on_keeps_its_disk() -> None:
    assert reason(decide(state(POD, claim(nodes=("bad",))), seen(0, 1, 2, live=(0, 1, 2)))) == "StillAlive"


def test_no_controller() -> None:
    snapshot = dataclasses.replace(seen(), controller_id=None)
    assert reason(decide(state(POD, claim(nodes=("bad",))), snapshot)) == "NoController"


@pytest.mark.parametrize(
    ("isr", "live", "given_up"),
    [
        ((0, 2), (0, 2), True),
        ((2,), (0, 2), True),
        ((0, 1), (0, 2), True),
        ((1,), (0, 2), False),
        ((0, 1), (2,), False),
        ((2, 1), (0,), False),
    ],
)
def test_no_only_copy_is_given_up(isr: tuple[int, ...], live: tuple[int, ...], given_up: bool) -> None:
    verdict = decide(state(POD, claim(nodes=("bad",))), seen(*isr, live=live))
    assert (verdict.step is not None) == given_up
    if not given_up:
        assert reason(verdict) == "OnlyCopies"
        assert verdict.waiting[0].needs_person
        assert "orders-0" in verdict.waiting[0].message


def test_an_only_copy_elsewhere_is_no_reason() -> None:
    snapshot = seen(1)
    gone = {"orders": dataclasses.replace(snapshot.topics["orders"], states={})}
    assert decide(state(POD, claim(nodes=("bad",))), dataclasses.replace(snapshot, topics=gone)).step is not None
    deleting = dataclasses.replace(snapshot, deleting=frozenset({"orders"}))
    assert decide(state(POD, claim(nodes=("bad",))), deleting).step is not None
    unreadable = dataclasses.replace(seen(), unreadable={"x": "A znode is invalid: /x."})
    assert reason(decide(state(POD, claim(nodes=("bad",))), unreadable)) == "ZnodeUnreadable"


def test_the_step_is_repeated_until_kubernetes_can_do_the_rest() -> None:
    going = claim(nodes=("bad",), terminating=True)
    assert isinstance(decide(state(POD, going)).step, ReleaseClaims), "its pod still holds it"
    assert reason(decide(state(PENDING, going))) == "DiskReleased"
    assert reason(decide(state(None, going))) == "DiskReleased"


def test_of_several_disks_only_the_lost_ones_go() -> None:
    names = ["data-0-demo-kafka-1", "data-1-demo-kafka-1"]
    pod = dataclasses.replace(PENDING, claims=tuple(names))
    observed = state(pod, claim(names[0], ("bad",)), claim(names[1], ("good",)))
    step = decide(observed, wanted=cluster(volumes=2)).step
    assert isinstance(step, ReleaseClaims)
    assert list(step.claims) == [names[0]]


def test_a_disk_that_others_can_reach_is_for_people() -> None:
    verdict = decide(state(POD, claim(nodes=())))
    assert reason(verdict) == "PodStranded"
    assert verdict.waiting[0].needs_person
    assert decide(state(POD, claim(nodes=()), bad_since=NOW)) == Verdict()


def lose(world: World, *brokers: int) -> None:
    for broker in brokers:
        world.lose_node(broker)
    world.elect()
    world.now += 300


def test_two_lost_disks_go_one_after_the_other() -> None:
    world = make_world({"orders": [(0, 1, 2), (1, 2, 0)]})
    lose(world, 0, 1)
    gone = []
    for _ in range(2):
        gone += [step.ordinal for step in world.round().steps if isinstance(step, ReleaseClaims)]
        world.sets_act()
    assert gone == [0, 1]
    for _ in range(5):
        world.settle()
        world.round()
    assert not world.decide().steps
    assert not world.decide().waiting
    assert all(set(one.isr) == {0, 1, 2} for one in world.all_partitions())


def test_who_has_lost_its_home() -> None:
    assert is_homeless(state(POD), POD)
    well = dataclasses.replace(POD, node="good")
    assert not is_homeless(state(well), well)
    assert is_homeless(state(PENDING, claim(nodes=("bad",))), PENDING)
    assert not is_homeless(state(PENDING, claim(nodes=("good",))), PENDING)


# Members of the ensemble


def ensemble_cluster(patience: int = 300, members: int = 3) -> Cluster:
    return Cluster(name="demo", zookeeper=ZooKeeper(replicas=members, release_lost_after_seconds=patience))


MEMBER = dataclasses.replace(POD, name="demo-zookeeper-1", claims=("data-demo-zookeeper-1",))
SERVING = Quorum(modes={0: "follower", 2: LEADER}, followers=1)


def member_state(pod: Pod | None, *, nodes: tuple[str, ...] = ("bad",), since: float = LOST_AT) -> KubernetesState:
    found = state(None, claim("data-demo-zookeeper-1", nodes), bad_since=since)
    return dataclasses.replace(found, ensemble={} if pod is None else {1: pod})


def of_members(observed: KubernetesState, quorum: Quorum = SERVING, wanted: Cluster | None = None) -> Verdict:
    return release.members(wanted or ensemble_cluster(), observed, quorum, now=NOW)


@pytest.mark.parametrize("pod", [MEMBER, dataclasses.replace(MEMBER, node=None, unscheduled_since=LOST_AT), None])
def test_the_lost_disk_of_a_member_is_given_up_while_all_others_serve(pod: Pod | None) -> None:
    assert of_members(member_state(pod)).step == ReleaseClaims(
        component=Component.ZOOKEEPER,
        ordinal=1,
        pod="demo-zookeeper-1",
        pod_uid=None if pod is None else "u1",
        claims={"data-demo-zookeeper-1": "uid-of-data-demo-zookeeper-1"},
        force=pod is not None and pod.node is not None,
        reason="the disk of ZooKeeper member 1 is lost with bad, and all other members serve",
    )


@pytest.mark.parametrize(
    ("quorum", "expected"),
    [
        (Quorum(), "MemberSilent"),
        (Quorum(modes={2: LEADER}, followers=0), "MemberSilent"),
        (Quorum(modes={0: "follower"}), "MemberSilent"),
        (Quorum(modes={0: "follower", 2: "follower"}), "NoLeader"),
        (Quorum(modes={0: LEADER, 2: LEADER}), "NoLeader"),
        # The leader still has a third member as a follower, although Kubernetes and the operator cannot reach that
        # member.
        (Quorum(modes={0: "follower", 2: LEADER}, followers=2), "FollowersDiffer"),
        (Quorum(modes={0: "follower", 2: LEADER}, followers=0), "FollowersDiffer"),
        (Quorum(modes={0: "follower", 1: "follower", 2: LEADER}, followers=2), "StillAlive"),
    ],
)
def test_a_member_that_may_be_needed_keeps_its_disk(quorum: Quorum, expected: str) -> None:
    assert reason(of_members(member_state(MEMBER), quorum)) == expected


def test_the_only_member_keeps_its_disk_and_people_are_told() -> None:
    pod = dataclasses.replace(MEMBER, name="demo-zookeeper-0", ordinal=0, claims=("data-demo-zookeeper-0",))
    found = state(None, claim("data-demo-zookeeper-0", ("bad",)))
    verdict = of_members(dataclasses.replace(found, ensemble={0: pod}), Quorum(), ensemble_cluster(members=1))
    assert reason(verdict) == "OnlyMember"
    assert verdict.waiting[0].needs_person


@pytest.mark.parametrize(
    ("patience", "since", "expected"),
    [(301, LOST_AT, "NodeLost"), (300, LOST_AT + 1, "NodeLost"), (0, 0.0, "ReleaseIsOff")],
)
def test_members_have_a_patience_of_their_own(patience: int, since: float, expected: str) -> None:
    assert reason(of_members(member_state(MEMBER, since=since), wanted=ensemble_cluster(patience))) == expected


def test_a_member_whose_disk_others_can_reach_is_for_people() -> None:
    verdict = of_members(member_state(MEMBER, nodes=()))
    assert reason(verdict) == "PodStranded"
    assert of_members(member_state(MEMBER, nodes=()), Quorum(modes={1: LEADER})) == Verdict()


def test_an_ensemble_of_others_is_theirs() -> None:
    theirs = Cluster(name="demo", zookeeper=ZooKeeper(connect="zk:2181"))
    assert of_members(member_state(MEMBER), wanted=theirs) == Verdict()


def test_a_member_comes_back_elsewhere() -> None:
    world = make_world({"orders": [(0, 1, 2)]})
    world.lose_member_node(1)
    world.elect()
    before = world.member_claims[1]
    assert not world.round().steps
    world.now += 300
    (step,) = world.round().steps
    assert isinstance(step, ReleaseClaims)
    world.settle()
    world.round()
    world.settle()
    assert world.member_claims[1] != before
    assert sorted(world.modes()) == [0, 1, 2]
    assert not world.decide().waiting
