"""Tests rolling restarts under load: no record is lost, and at most one broker is down at a time."""

from __future__ import annotations

from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from kube.cluster import Cluster
from ordeals.conftest import Loaded, change, finish, uids
from support.figures import tell
from support.images import PREFIX, VERSION
from support.product import IMAGES, Demo
from support.waiting import eventually, holds
from support.watching import PodWatch, most_away, pods_watched, renewed

pytestmark = pytest.mark.e2e_full

NEXT_VERSION: Final = "0.1.1"
MISSING_VERSION: Final = "0.1.99"
STATIC: Final = "max.incremental.fetch.session.cache.slots"
DYNAMIC: Final = "log.segment.delete.delay.ms"
ROLL_SECONDS: Final = 600.0
BROKERS: Final = "app.kubernetes.io/component=kafka"
EVERYBODY: Final = "odradek.dev/cluster=demo"
STAYS_SECONDS: Final = 15.0


def controller(demo: Demo) -> str:
    return f"{demo.name}-kafka-{demo.cluster()['status']['controllerId']}"


def await_rolled(demo: Demo, watch: PodWatch, count: int) -> None:
    """Wait until `count` pods were replaced and the Cluster matches its specification."""
    eventually(
        lambda: renewed(watch.changes()), lambda names: len(names) >= count, what="the restarts", seconds=ROLL_SECONDS
    )
    demo.await_ready(ROLL_SECONDS)


def assert_rolled_one_by_one(watch: PodWatch, *, last: str) -> None:
    """Assert that every broker restarted once, the controller last, and never two at the same time."""
    changes = watch.changes()
    order = renewed(changes)
    tell(f"{' '.join(order)}")
    assert sorted(order) == [f"demo-kafka-{number}" for number in range(3)]
    assert order[-1] == last
    assert len(most_away(changes)) <= 1, f"away at once: {most_away(changes)}"


def test_a_static_property_restarts_brokers_one_after_the_other(demo: Demo, loaded: Loaded) -> None:
    last = controller(demo)
    slots = int(demo.cluster()["spec"]["brokers"]["config"].get(STATIC, 1000)) + 1
    with loaded() as load, pods_watched(demo.kubectl, BROKERS, count=3) as watch:
        change(demo, {"brokers": {"config": {STATIC: slots}}})
        await_rolled(demo, watch, 3)
        finish(load)

        assert_rolled_one_by_one(watch, last=last)


def test_a_dynamic_property_restarts_nobody(demo: Demo, admin: AdminClient) -> None:
    before = uids(demo, "")
    delay = int(demo.cluster()["spec"]["brokers"]["config"].get(DYNAMIC, 50_000)) + 1_000
    change(demo, {"brokers": {"config": {DYNAMIC: delay}}})

    for broker in range(3):
        eventually(
            lambda broker=broker: described(admin, broker)[DYNAMIC],
            lambda value: value == str(delay),
            what=f"the new value in broker {broker}",
        )
    demo.await_ready()
    holds(lambda: uids(demo, ""), lambda now: now == before, what="all pods are the same", seconds=STAYS_SECONDS)


def described(admin: AdminClient, broker: int) -> dict[str, str]:
    """The properties of a broker as it reports them to clients."""
    asked = ConfigResource(ResourceType.BROKER, str(broker))
    (answer,) = admin.describe_configs([asked], request_timeout=30).values()
    return {name: entry.value for name, entry in answer.result().items()}


def test_a_new_version_rolls_ensemble_and_brokers(own_cluster: Cluster, demo: Demo, loaded: Loaded) -> None:
    for name in IMAGES:
        own_cluster.tag(f"{PREFIX}/{name}:{VERSION}", f"{PREFIX}/{name}:{NEXT_VERSION}")
    last = controller(demo)
    try:
        with (
            loaded() as load,
            pods_watched(demo.kubectl, BROKERS, count=3) as watch,
            pods_watched(demo.kubectl, EVERYBODY, count=6) as everybody,
        ):
            change(demo, {"version": NEXT_VERSION})
            await_rolled(demo, watch, 3)
            finish(load)

            assert_rolled_one_by_one(watch, last=last)
            assert_never_two_away(everybody)
        assert demo.cluster()["status"]["version"] == NEXT_VERSION
        assert versions(demo, "kafka") == versions(demo, "zookeeper") == {NEXT_VERSION}
    finally:
        change(demo, {"version": VERSION})
        demo.await_ready(ROLL_SECONDS)


def assert_never_two_away(watch: PodWatch) -> None:
    """Assert that at most one pod was unavailable at a time, brokers and ZooKeeper members counted together."""
    changes = [one for one in watch.changes() if "exporter" not in one.pod.name]
    assert len(most_away(changes)) <= 1, f"away at once: {most_away(changes)}"


def versions(demo: Demo, component: str) -> set[str]:
    found = demo.kubectl.list("pods", f"odradek.dev/cluster={demo.name},app.kubernetes.io/component={component}")
    return {container["image"].rpartition(":")[2] for pod in found for container in pod["spec"]["containers"]}


def waits_for(demo: Demo) -> str:
    """The reason why the next restart has to wait."""
    roll = demo.cluster().get("status", {}).get("roll", {})
    return str(roll.get("waitingFor", ""))


BAD_AND_GOOD: Final = (
    pytest.param({"version": MISSING_VERSION}, {"version": VERSION}, id="image-that-is-not-there"),
    pytest.param(
        {"brokers": {"resources": {"requests": {"cpu": "512"}}}},
        {"brokers": {"resources": {"requests": {"cpu": "50m"}}}},
        id="more-than-any-node-has",
    ),
)


@pytest.mark.parametrize(("bad", "good"), BAD_AND_GOOD)
def test_a_template_that_cannot_become_ready_hurts_one_pod_and_is_mended(
    demo: Demo, loaded: Loaded, bad: dict[str, Any], good: dict[str, Any]
) -> None:
    selector = f"{EVERYBODY},app.kubernetes.io/component in (kafka,zookeeper)"
    with loaded() as load, pods_watched(demo.kubectl, selector, count=6) as watch:
        change(demo, bad)
        try:
            (hurt,) = eventually(lambda: renewed(watch.changes()), what="a pod of the bad template")
            message = eventually(
                lambda: waits_for(demo), lambda sentence: hurt in sentence, what=f"a word about {hurt}"
            )
            tell(message)
            load.await_more()
            holds(
                lambda: renewed(watch.changes()),
                lambda names: names == (hurt,),
                what="only one pod is hurt",
                seconds=STAYS_SECONDS,
            )
        finally:
            change(demo, good)
        demo.await_ready(ROLL_SECONDS)
        eventually(lambda: demo.kubectl.pod(hurt), lambda pod: pod is not None and pod.ready, what=f"{hurt} is back")
        finish(load)

        assert set(renewed(watch.changes())) == {hurt}
        assert most_away(watch.changes()) == {hurt}
