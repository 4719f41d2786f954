"""The finalizer is set only where it is needed, and finalizers of others stay."""

from __future__ import annotations

import pytest

from odradek.zk.layout import TopicAssignment
from odradek_operator.crds import Cluster, Deletion, Topic
from odradek_operator.kube.api.object_kinds import Kind, Object
from odradek_operator.kube.cluster.finalizers import FINALIZERS, has_finalizer, release_finalizers
from odradek_operator.kube.cluster.topic_finalizers import DeletedTopics, keep_finalizers
from odradek_operator.topics.reconcile import Outcome
from odradek_operator.topics.topic_plan import Wanted, make_plan
from odradek_operator.topics.zookeeper_state import ObservedTopic, Snapshot
from odradek_operator_testkit.api import KubernetesApi
from odradek_operator_testkit.client import MemoryClient
from odradek_operator_testkit.store import key_of
from odradek_operator_testkit.surroundings import topic_body
from odradek_testkit.loop import run_virtual

OTHER = "example.org/other"
THERE = ObservedTopic(assignment=TopicAssignment(topic="orders", partitions={}), version=1)


def outcome(*, there: bool, deleting: bool = False) -> Outcome:
    snapshot = Snapshot(topics={"orders": THERE} if there else {}, deleting=frozenset({"orders"} if deleting else ()))
    return Outcome(snapshot=snapshot, plan=make_plan(Wanted(cluster=Cluster(name="demo")), snapshot))


def resource(api: KubernetesApi, *finalizers: str, leaving: bool = False) -> Object:
    body = topic_body("orders")
    body["metadata"]["finalizers"] = list(finalizers)
    made = api.put(body)
    return api.store.delete(key_of(made), {}) if leaving else made


async def keep(api: KubernetesApi, body: Object, deletion: Deletion, seen: Outcome) -> list[str] | None:
    """Update the finalizers of a topic. Return the finalizers that it has then; None if it is deleted."""
    topic = Topic(name="orders", cluster="demo", deletion=deletion)
    await keep_finalizers(MemoryClient(api), {"orders": body}, {"orders": topic}, seen)
    found = api.store.find(key_of(body))
    return None if found is None else found["metadata"].get("finalizers") or []


@pytest.mark.parametrize("deletion", Deletion)
@pytest.mark.parametrize("before", [(), (FINALIZERS[Kind.TOPIC],), (OTHER,), (OTHER, FINALIZERS[Kind.TOPIC])])
def test_finalizers_of_a_resource_that_is_not_deleted(deletion: Deletion, before: tuple[str, ...]) -> None:
    async def run() -> None:
        api = KubernetesApi()
        ours = [FINALIZERS[Kind.TOPIC]] if deletion is Deletion.DELETE else []
        theirs = [OTHER] if OTHER in before else []
        assert await keep(api, resource(api, *before), deletion, outcome(there=True)) == theirs + ours

    run_virtual(run())


def test_a_resource_that_is_being_deleted_waits_for_its_topic() -> None:
    async def run() -> None:
        api = KubernetesApi()
        body = resource(api, FINALIZERS[Kind.TOPIC], leaving=True)
        assert await keep(api, body, Deletion.DELETE, outcome(there=True)) == [FINALIZERS[Kind.TOPIC]]
        assert await keep(api, body, Deletion.DELETE, outcome(there=False, deleting=True)) == [FINALIZERS[Kind.TOPIC]]
        assert await keep(api, body, Deletion.DELETE, outcome(there=False)) is None

    run_virtual(run())


def test_a_protected_topic_does_not_hold_its_resource() -> None:
    async def run() -> None:
        api = KubernetesApi()
        body = resource(api, FINALIZERS[Kind.TOPIC], OTHER, leaving=True)
        assert await keep(api, body, Deletion.PROTECT, outcome(there=True)) == [OTHER]

    run_virtual(run())


def test_no_finalizer_is_added_to_a_resource_that_is_being_deleted() -> None:
    async def run() -> None:
        api = KubernetesApi()
        body = resource(api, OTHER, leaving=True)
        count = len(api.writes)
        assert await keep(api, body, Deletion.DELETE, outcome(there=True)) == [OTHER]
        assert len(api.writes) == count

    run_virtual(run())


def test_a_resource_that_changed_meanwhile_is_left_for_the_next_round() -> None:
    async def run() -> None:
        api = KubernetesApi()
        body = resource(api)
        api.store.merge(key_of(body), {"metadata": {"finalizers": [OTHER]}})
        assert await keep(api, body, Deletion.DELETE, outcome(there=True)) == [OTHER]
        fresh = api.store.get(key_of(body))
        assert await keep(api, fresh, Deletion.DELETE, outcome(there=True)) == [OTHER, FINALIZERS[Kind.TOPIC]]

    run_virtual(run())


def test_resources_without_a_cluster_lose_the_finalizer() -> None:
    async def run() -> None:
        api = KubernetesApi()
        body = resource(api, FINALIZERS[Kind.TOPIC], leaving=True)
        assert has_finalizer(body)
        await release_finalizers(MemoryClient(api), [body])
        assert api.store.find(key_of(body)) is None

    run_virtual(run())


def gone(uid: str, **spec: object) -> Object:
    body = topic_body("orders", **{"deletion": "Delete", **spec})
    body["metadata"]["uid"] = uid
    return body


def test_a_list_that_was_read_before_a_deletion_does_not_hide_it() -> None:
    """The watch reports the deletion while a round still works with its list."""
    vanished = DeletedTopics()
    vanished.add(gone("1"))
    assert vanished.missing_in({"orders": gone("1")}) == {}
    assert vanished.missing_in({}).keys() == {"orders"}
    assert vanished.missing_in({}).keys() == {"orders"}, "it is remembered until its topic is deleted"
    vanished.settle("orders")
    assert vanished.missing_in({}) == {}


def test_a_new_resource_of_the_name_replaces_the_deleted_one() -> None:
    vanished = DeletedTopics()
    vanished.add(gone("1"))
    assert vanished.missing_in({"orders": gone("2")}) == {}
    assert vanished.missing_in({}) == {}


def test_a_deleted_resource_that_protected_its_topic_or_was_released_is_not_remembered() -> None:
    vanished = DeletedTopics()
    vanished.add(gone("1", deletion="Protect"))
    body = gone("1")
    body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    vanished.add(body)
    assert vanished.missing_in({}) == {}
