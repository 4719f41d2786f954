"""Tests that two hundred topics are created quickly at once and with little load on the API server."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from confluent_kafka.admin import AdminClient

from support.audit import AuditLog
from support.figures import tell
from support.product import TOPIC, Demo, is_settled, topic_of
from support.tables import parse
from support.waiting import eventually, scaled

TOPICS = 200
READY_SECONDS = 30.0
WRITES_A_SECOND = 20
SHOWN_SECONDS = 10.0
OPERATOR = "odradek-operator"
LABEL = {"e2e": "many"}

pytestmark = pytest.mark.e2e_full


def names() -> list[str]:
    return [f"many-{number:03}" for number in range(TOPICS)]


def ready(demo: Demo) -> int:
    return sum(is_settled(one) for one in demo.kubectl.list(TOPIC, "e2e=many"))


def writes_by_second(audit: AuditLog) -> Counter[int]:
    """The number of the operator's writes, except for Leases, in each second of the API server's clock."""
    found = audit.requests(lambda request: request.writes and OPERATOR in request.user and request.resource != "leases")
    return Counter(int(request.at) for request in found)


def test_two_hundred_topics_by_one_apply(demo: Demo, admin: AdminClient, audit: AuditLog) -> None:
    resources = [topic_of(name, partitions=1, replicas=2) for name in names()]
    resources = [{**one, "metadata": {**one["metadata"], "labels": LABEL}} for one in resources]
    try:
        began = time.monotonic()
        demo.kubectl.apply(*resources)
        applied = time.monotonic()
        eventually(
            lambda: ready(demo), lambda count: count == TOPICS, what="readiness of all topics", seconds=READY_SECONDS
        )
        took = time.monotonic() - applied
        tell(f"{TOPICS} topics: kubectl took {applied - began:.1f} s, all Ready {took:.1f} s after it")

        assert set(names()) <= set(admin.list_topics(timeout=30).topics)
        seconds = writes_by_second(audit)
        tell(f"{seconds.total()} writes by the operator, at most {max(seconds.values())} within a second")
        assert seconds.total() >= TOPICS, "each status was written by somebody else"
        assert max(seconds.values()) < WRITES_A_SECOND
        a_change_is_shown_soon(demo)
    finally:
        demo.kubectl.run("delete", TOPIC, "--selector=e2e=many")
        assert set(names()) <= set(admin.list_topics(timeout=30).topics), "protected topics stay"
        for deleted in admin.delete_topics(names(), operation_timeout=60).values():
            deleted.result()


def a_change_is_shown_soon(demo: Demo) -> None:
    """A change of one of two hundred resources is visible in `kubectl get` within ten seconds."""

    def shown() -> list[dict[str, str]]:
        return parse(demo.kubectl.run("get", TOPIC, "many-100"))

    assert shown()[0]["PARTITIONS"] == "1"
    began = time.monotonic()
    demo.kubectl.patch(TOPIC, "many-100", {"spec": {"partitions": 3}})
    eventually(
        shown,
        lambda rows: rows[0]["PARTITIONS"] == "3" and rows[0]["READY"] == "True",
        what="the new count of partitions in kubectl get",
        seconds=SHOWN_SECONDS,
    )
    took = time.monotonic() - began
    tell(f"a change was shown after {took:.1f} s")
    assert took < scaled(SHOWN_SECONDS)
