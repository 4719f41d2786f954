"""Kubernetes Events: each occurrence is reported once, and a failure to write an Event stops nothing."""

from __future__ import annotations

from odradek_operator.kube.api.object_kinds import Object
from odradek_operator.kube.cluster.kubernetes_events import MAX_NOTE, REMEMBERED, Events, EventType
from odradek_operator_testkit.api import KubernetesApi
from odradek_operator_testkit.client import MemoryClient
from odradek_operator_testkit.surroundings import cluster_body
from odradek_testkit.loop import run_virtual


def events_in(api: KubernetesApi) -> list[Object]:
    return api.store.all(api.place("/api/v1/events").resource, None)


def begin() -> tuple[KubernetesApi, Events, Object]:
    api = KubernetesApi()
    events = Events(MemoryClient(api, writes_per_second=100_000), instance="operator-0")
    return api, events, api.put(cluster_body())


def test_an_event_is_about_its_object() -> None:
    async def run() -> None:
        api, events, cluster = begin()
        await events.write(cluster, "RestartPod", "its template changed", EventType.WARNING)
        (event,) = events_in(api)
        assert event["involvedObject"]["uid"] == cluster["metadata"]["uid"]
        assert event["metadata"]["namespace"] == cluster["metadata"]["namespace"]
        assert (event["reason"], event["message"], event["type"]) == ("RestartPod", "its template changed", "Warning")

    run_virtual(run())


def test_a_lasting_state_is_written_once_and_an_action_each_time() -> None:
    async def run() -> None:
        api, events, cluster = begin()
        for _ in range(3):
            await events.write_once(cluster, "Waiting", "broker 1 is away.")
        await events.write_once(cluster, "Waiting", "broker 2 is away.")
        assert [event["message"] for event in events_in(api)].count("broker 1 is away.") == 1
        assert len(events_in(api)) == 2
        for _ in range(3):
            await events.write(cluster, "RestartPod", "again")
        assert len(events_in(api)) == 5

    run_virtual(run())


def test_the_number_of_remembered_messages_is_limited() -> None:
    async def run() -> None:
        api, events, cluster = begin()
        for number in range(REMEMBERED + 1):
            await events.write_once(cluster, "Waiting", f"for {number}.")
        await events.write_once(cluster, "Waiting", f"for {REMEMBERED}.")
        assert len(events_in(api)) == REMEMBERED + 1
        await events.write_once(cluster, "Waiting", "for 0.")
        assert len(events_in(api)) == REMEMBERED + 2

    run_virtual(run())


def test_long_messages_are_cut_and_long_names_fit() -> None:
    async def run() -> None:
        api, events, cluster = begin()
        cluster["metadata"]["name"] = "n" * 253
        await events.write(cluster, "Waiting", "x" * 5_000)
        (event,) = events_in(api)
        assert len(event["message"]) == MAX_NOTE
        assert len(event["metadata"]["name"]) <= 253

    run_virtual(run())


def test_an_event_that_cannot_be_written_is_only_logged() -> None:
    async def run() -> None:
        api, events, cluster = begin()
        api.faults.refuses = True
        await events.write(cluster, "Waiting", "nobody hears")
        assert events_in(api) == []

    run_virtual(run())
