"""Which broker's pod may restart, rule by rule."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from odradek_operator.lifecycle import rolling
from odradek_operator.lifecycle.rolling import EnsembleState
from odradek_operator.lifecycle.steps import RestartPod, Verdict
from odradek_operator.topics.zookeeper_state import Snapshot

from .world import KAFKA, PodModel, World, make_world

THREE = {"orders": [(0, 1, 2), (1, 2, 0), (2, 0, 1)]}


def outdated_world(topics: dict[str, list[tuple[int, ...]]] | None = None, minimum: int = 2, brokers: int = 3) -> World:
    """Return a healthy world whose broker pods have an old template. The controller is the last broker."""
    world = make_world(THREE if topics is None else topics, minimum={"orders": minimum}, brokers=brokers)
    for pod in world.pods.values():
        pod.hash = "old"
    return world


def seen(world: World) -> Snapshot:
    snapshot = world.snapshot()
    assert snapshot is not None
    return snapshot


def decide(world: World, snapshot: Snapshot | None = None, ensemble: EnsembleState | None = None) -> Verdict:
    return rolling.decide(
        world.cluster,
        world.observe(),
        snapshot or seen(world),
        wanted_hash="a",
        count=world.sets[KAFKA].replicas,
        ensemble=ensemble or EnsembleState(),
    )


def restarts(verdict: Verdict) -> int:
    assert isinstance(verdict.step, RestartPod), verdict
    assert verdict.step.pod == f"demo-kafka-{verdict.step.ordinal}"
    assert not verdict.waiting
    return verdict.step.ordinal


def waits(verdict: Verdict) -> tuple[str, str]:
    assert verdict.step is None
    (waiting,) = verdict.waiting
    assert waiting.what == "roll"
    assert waiting.message.endswith(".")
    return waiting.reason, waiting.message


def test_nothing_is_outdated() -> None:
    assert decide(make_world(THREE)) == Verdict()


def test_others_go_by_id_and_the_controller_last() -> None:
    world = outdated_world()
    order = []
    for _ in range(3):
        broker = restarts(decide(world))
        order.append(broker)
        world.pods[broker].hash = "a"
    assert order == [0, 1, 2]
    world = outdated_world()
    world.controller = 0
    assert restarts(decide(world)) == 1


def test_nothing_before_the_template_is_there() -> None:
    world = outdated_world()
    for change in ({"restart_hash": "b"}, {"generation_observed": False}):
        world.sets[KAFKA] = dataclasses.replace(make_world(THREE).sets[KAFKA], **change)
        assert decide(world) == Verdict()


def down(world: World) -> None:
    world.crash(1)


def unready(world: World) -> None:
    world.pods[1].ready = False


@pytest.mark.parametrize("trouble", [down, unready])
def test_what_is_not_ready_goes_first(trouble: Callable[[World], None]) -> None:
    world = outdated_world()
    trouble(world)
    assert restarts(decide(world)) == 1


def test_a_broken_pod_goes_though_others_are_broken_too() -> None:
    world = outdated_world(minimum=3)
    for broker in (1, 2):
        world.crash(broker)
    world.controller = None
    world.elect()
    assert restarts(decide(world)) == 1
    world.pods[1] = PodModel(uid="new", hash="a", node="node-x")
    assert restarts(decide(world)) == 2, "it was down before, so no second one goes"


def missing(world: World) -> None:
    del world.pods[0]


def terminating(world: World) -> None:
    world.pods[0].terminating = True


def starting(world: World) -> None:
    world.pods[0] = PodModel(uid="new", hash="a", node="node-1")


def not_registered(world: World) -> None:
    world.pods[0].hash = "a"
    world.registered.discard(0)


@pytest.mark.parametrize(
    ("away", "message"),
    [
        (missing, "Broker 0 has no pod yet."),
        (terminating, "Broker 0 is ending."),
        (starting, "Broker 0 does not serve yet: It is starting."),
        (not_registered, "Broker 0 does not serve yet: It is not registered yet."),
    ],
)
def test_one_at_a_time(away: Callable[[World], None], message: str) -> None:
    world = outdated_world()
    away(world)
    assert waits(decide(world)) == ("BrokerRestarting", message)
    world.pods[1].ready = False
    assert waits(decide(world))[0] == "BrokerRestarting", "nor one that is registered and not ready"


def test_an_outdated_broker_that_is_ready_and_not_registered_is_waited_for() -> None:
    world = outdated_world()
    world.registered.discard(1)
    assert waits(decide(world)) == ("BrokerNotRegistered", "Broker 1: not registered in ZooKeeper.")


def test_no_controller() -> None:
    world = outdated_world()
    assert waits(decide(world, dataclasses.replace(seen(world), controller_id=None)))[0] == "NoController"


def test_one_beyond_the_size_is_none_of_ours() -> None:
    world = outdated_world()
    world.pods[3] = PodModel(uid="u3", hash="old", node="n", terminating=True)
    assert restarts(decide(world)) == 0


def test_a_pod_on_a_lost_node_does_not_restart_and_is_waited_for() -> None:
    world = outdated_world()
    world.lose_node(1)
    assert waits(decide(world))[0] == "NodeLost"
    world.crash(0)
    assert restarts(decide(world)) == 0


@pytest.mark.parametrize(
    ("replicas", "isr", "minimum", "expected"),
    [
        # Whether broker 0 of brokers 0 to 3 may restart, and whether the partition falls below its minimum.
        ((0, 1, 2), (0, 1, 2), 2, "goes"),
        ((0, 1, 2), (0, 1), 2, "waits"),
        ((0, 1, 2), (0, 1), 1, "goes"),
        ((0, 1, 2), (0,), 1, "waits"),
        ((0, 1, 2), (1, 2), 2, "goes"),
        ((0, 1, 2), (1,), 2, "goes"),
        # The minimum cannot be kept without broker 0. The restart needs all other replicas in sync, and is reported.
        ((0, 1, 2), (0, 1, 2), 3, "costs"),
        ((0, 1, 2), (0, 1), 3, "waits"),
        ((0, 1), (0, 1), 2, "costs"),
        ((0, 1), (0,), 2, "waits"),
        ((0,), (0,), 1, "costs"),
        ((0,), (0,), 2, "costs"),
    ],
)
def test_in_sync_replicas(replicas: tuple[int, ...], isr: tuple[int, ...], minimum: int, expected: str) -> None:
    # The other partitions give each broker replicas in sync. Otherwise it would count as a broker that refills its
    # disk.
    world = outdated_world({"orders": [replicas], "rest": [(0,), (1,), (2,)] * 3}, minimum=minimum, brokers=4)
    world.pods[1].hash = world.pods[2].hash = world.pods[3].hash = "a"
    world.topics["orders"][0].isr = isr
    verdict = decide(world)
    if expected == "waits":
        assert waits(verdict) == (
            "InSyncReplicas",
            "Without broker 0, orders-0 would have fewer in-sync replicas than needed.",
        )
        return
    assert restarts(verdict) == 0
    assert verdict.step is not None
    assert ("orders-0" in verdict.step.reason) == (expected == "costs")


def test_one_that_may_go_is_not_kept_by_one_that_may_not() -> None:
    world = outdated_world({"orders": [(0, 1, 2)], "rest": [(0,), (1,), (2,), (3,)] * 3}, brokers=4)
    world.topics["orders"][0].isr = (0, 2)
    assert restarts(decide(world)) == 1, "it is not in sync, so its absence takes nothing"


def test_in_sync_replicas_on_brokers_that_are_not_there_do_not_count() -> None:
    world = outdated_world({"orders": [(0, 1, 9)], "rest": [(0,), (1,), (2,)] * 3})
    world.controller = 1
    world.topics["orders"][0].isr = (0, 1, 9)
    assert restarts(decide(world)) == 2, "which has nothing of orders"
    world.pods[2].hash = "a"
    assert waits(decide(world))[0] == "InSyncReplicas"


@pytest.mark.parametrize(
    ("topic", "default", "static", "allowed"),
    [
        (None, None, None, True),
        ("1", "2", "2", True),
        ("2", "1", "1", False),
        (None, "1", "2", True),
        (None, "2", "1", False),
        (None, None, "2", False),
        ("nonsense", None, "2", False),
        (None, "0", None, True),
    ],
)
def test_where_the_minimum_stands(topic: str | None, default: str | None, static: str | None, allowed: bool) -> None:
    world = outdated_world({"orders": [(0, 1, 2)], "rest": [(0,), (1,), (2,)] * 3})
    for broker in (1, 2):
        world.pods[broker].hash = "a"
    world.topics["orders"][0].isr = (0, 1)
    world.minimum = {}
    key = "min.insync.replicas"
    world.overrides = {"orders": {} if topic is None else {key: topic}}
    world.defaults = {} if default is None else {key: default}
    brokers = dataclasses.replace(world.cluster.brokers, config={} if static is None else {key: static})
    world.cluster = dataclasses.replace(world.cluster, brokers=brokers)
    assert (decide(world).step is not None) == allowed


def test_a_topic_that_is_being_deleted_keeps_nobody() -> None:
    world = outdated_world({"orders": [(0, 1)]})
    world.topics["orders"][0].isr = (0,)
    world.pods[1].hash = world.pods[2].hash = "a"
    assert waits(decide(world))[0] == "BrokerRefilling"
    assert restarts(decide(world, dataclasses.replace(seen(world), deleting=frozenset({"orders"})))) == 0


def test_a_move_under_way_is_no_reason_to_wait() -> None:
    world = outdated_world()
    one = world.topics["orders"][0]
    one.replicas, one.adding, one.removing = (3, 0, 1, 2), (3,), (0,)
    world.registered.add(3)
    assert restarts(decide(world)) == 0
    world.minimum = {"orders": 3}
    assert restarts(decide(world)) == 0, "it has three replicas, so there are at most two others"


def test_a_factor_that_grows_is_waited_for() -> None:
    world = outdated_world({"orders": [(0,)], "rest": [(0,), (1,), (2,)] * 3}, minimum=1)
    world.pods[1].hash = world.pods[2].hash = "a"
    one = world.topics["orders"][0]
    one.replicas, one.adding = (0, 1), (1,)
    assert waits(decide(world))[0] == "InSyncReplicas"


def test_while_a_broker_refills_only_its_own_pod_may_go() -> None:
    world = outdated_world(minimum=1)
    for one in world.all_partitions():
        one.isr = (0, 2)
        one.leader = 0
    assert restarts(decide(world)) == 1
    world.pods[1].hash = "a"
    assert waits(decide(world)) == ("BrokerRefilling", "Broker 1: most replicas are not in sync yet.")
    for one in world.all_partitions()[:2]:
        one.isr = (0, 2, 1)
    assert restarts(decide(world)) == 0


def test_the_ensemble_goes_first_unless_a_broker_is_not_ready() -> None:
    world = outdated_world()
    due = EnsembleState(due="Pod z restarts first.")
    away = EnsembleState(away="Pod z is not ready.", due="Pod z restarts first.")
    assert waits(decide(world, ensemble=due)) == ("EnsembleRestarting", "Pod z restarts first.")
    assert waits(decide(world, ensemble=away)) == ("EnsembleRestarting", "Pod z is not ready.")
    world.pods[1].ready = False
    assert restarts(decide(world, ensemble=due)) == 1
    assert waits(decide(world, ensemble=away))[0] == "EnsembleRestarting"
    world.crash(1)
    assert restarts(decide(world, ensemble=away)) == 1


def test_nothing_is_concluded_from_what_cannot_be_read() -> None:
    world = outdated_world()
    snapshot = dataclasses.replace(seen(world), unreadable={"x": "A znode is invalid: /x."})
    verdict = decide(world, snapshot)
    assert waits(verdict) == ("ZnodeUnreadable", "A znode is invalid: /x.")
    assert verdict.waiting[0].needs_person
    world.crash(0)
    down = dataclasses.replace(seen(world), unreadable=snapshot.unreadable)
    assert restarts(decide(world, down)) == 0, "who is down already loses nothing"


def test_topics_known_by_name_only_are_refused() -> None:
    world = outdated_world()
    snapshot = seen(world)
    bare = {name: dataclasses.replace(topic, version=-1) for name, topic in snapshot.topics.items()}
    with pytest.raises(ValueError, match="orders was not read"):
        decide(world, dataclasses.replace(snapshot, topics=bare))


SPREAD = {"orders": [(0, 1001), (1, 1002), (2, 1000)]}


def world_of_pairs(topics: dict[str, list[tuple[int, ...]]], minimum: int = 1, pods: int = 3) -> World:
    """Return a world with two brokers in each outdated pod. The controller is broker 1002, or that of the last pod."""
    world = make_world(topics, minimum={"orders": minimum}, brokers=pods, per_pod=2)
    for pod in world.pods.values():
        pod.hash = "old"
    return world


def decide_pairs(world: World) -> Verdict:
    return rolling.decide(
        world.cluster,
        world.observe(),
        seen(world),
        wanted_hash=world.brokers_hash(2),
        count=world.sets[KAFKA].replicas,
        ensemble=EnsembleState(),
    )


def test_all_brokers_of_a_pod_restart_together() -> None:
    world = world_of_pairs(SPREAD)
    assert restarts(decide_pairs(world)) == 0
    for ordinal in (0, 1):
        world.pods[ordinal].hash = world.brokers_hash(2)
    assert restarts(decide_pairs(world)) == 2


def test_the_pod_of_the_controller_is_last_whatever_its_slot() -> None:
    world = world_of_pairs(SPREAD)
    world.controller = 1000
    assert restarts(decide_pairs(world)) == 1


def test_replicas_in_one_pod_make_it_wait() -> None:
    """Planted fault: with absences of single brokers, the other replica in the pod would count as in sync."""
    world = world_of_pairs({"orders": [(0, 1000)]})
    world.pods[1].hash = world.pods[2].hash = world.brokers_hash(2)
    assert waits(decide_pairs(world)) == (
        "InSyncReplicas",
        "Without brokers 0 and 1000, orders-0 would have fewer in-sync replicas than needed. orders-0 has several "
        "replicas in demo-kafka-0: move them to brokers of other pods.",
    )


def test_replicas_share_a_pod_if_there_are_not_enough_pods() -> None:
    world = world_of_pairs({"orders": [(0, 1, 1001)]}, minimum=2, pods=2)
    world.pods[0].hash = world.brokers_hash(2)
    world.controller = 0
    verdict = decide_pairs(world)
    assert restarts(verdict) == 1
    assert isinstance(verdict.step, RestartPod)
    assert "orders-0 will lack in-sync replicas meanwhile" in verdict.step.reason


def test_a_pod_that_has_not_restarted_yet_has_fewer_brokers() -> None:
    """While `perPod` grows, brokers that no pod has yet are not missing."""
    world = make_world({"orders": [(0, 1), (1, 0)]}, brokers=2)
    world.cluster = dataclasses.replace(world.cluster, brokers=dataclasses.replace(world.cluster.brokers, per_pod=2))
    world.round()
    world.sets_act()
    assert restarts(decide_pairs(world)) == 0


def test_a_pod_with_a_broker_that_does_not_serve_is_awaited() -> None:
    world = world_of_pairs(SPREAD)
    world.pods[0].hash = world.brokers_hash(2)
    world.crash(1000)
    world.elect()
    assert waits(decide_pairs(world)) == ("BrokerRestarting", "Pod demo-kafka-0 does not serve yet: It is starting.")
    world.pods[0].ready = True
    assert waits(decide_pairs(world))[1] == "Pod demo-kafka-0 does not serve yet: Broker 1000: not registered yet."
