"""Tests operators that are killed at every step of a rolling restart, and two operators at the same time."""

from __future__ import annotations

import threading
import time
from typing import Final

import pytest

from ordeals.conftest import Loaded, change, finish
from support.audit import AuditLog
from support.figures import tell
from support.helm import HelmError
from support.isr import in_sync_watched
from support.product import Demo, Release
from support.waiting import eventually, scaled
from support.watching import most_away, pods_watched, renewed

pytestmark = pytest.mark.e2e_full

STATIC: Final = "max.incremental.fetch.session.cache.slots"
BROKERS: Final = "app.kubernetes.io/component=kafka"
ROLL_SECONDS: Final = 900.0
MIN_IN_SYNC: Final = 2
OPERATORS: Final = "app.kubernetes.io/component=operator"
LEASE: Final = "odradek-operator"
CALM_SECONDS: Final = 0.2
_pause = threading.Event()


def one_more(demo: Demo) -> int:
    """A new value of a broker property that requires a rolling restart."""
    return int(demo.cluster()["spec"]["brokers"]["config"].get(STATIC, 1000)) + 1


def kill_operators(release: Release) -> None:
    """Kill all operators at the same time, without a graceful stop."""
    names = [pod.name for pod in release.pods()]
    if names:
        release.kubectl.delete("pod", *names, wait=False, force=True)


def events_told(demo: Demo) -> int:
    """The number of Events that the operator reported about the cluster."""
    return sum(event.count for event in demo.kubectl.events() if event.kind == "Cluster")


def test_operators_that_die_at_every_step_of_a_roll_end_it_all_the_same(
    demo: Demo, release: Release, bootstrap: str, topic: str, loaded: Loaded
) -> None:
    with (
        loaded() as load,
        in_sync_watched(bootstrap, topic) as in_sync,
        pods_watched(demo.kubectl, BROKERS, count=3) as watch,
    ):
        killed, marks = 0, (events_told(demo), len(renewed(watch.changes())))
        change(demo, {"brokers": {"config": {STATIC: one_more(demo)}}})
        deadline = time.monotonic() + scaled(ROLL_SECONDS)
        while len(renewed(watch.changes())) < 3:
            assert time.monotonic() < deadline, f"{renewed(watch.changes())} of three, {killed} times killed"
            now = (events_told(demo), len(renewed(watch.changes())))
            if now != marks:
                kill_operators(release)
                killed, marks = killed + 1, now
            _pause.wait(CALM_SECONDS)
        demo.await_ready(ROLL_SECONDS)
        finish(load)

        changes = watch.changes()
        tell(f"{killed} times, {in_sync.answers} looks at in-sync sets, smallest {in_sync.smallest}")
        assert killed >= 3
        assert sorted(renewed(changes)) == [f"demo-kafka-{number}" for number in range(3)]
        assert len(most_away(changes)) <= 1
        assert in_sync.smallest is not None
        assert len(in_sync.smallest) >= MIN_IN_SYNC


def holder(demo: Demo) -> str:
    """The active operator, which is the holder of the Lease in the cluster's namespace."""
    return str(demo.kubectl.require("lease", LEASE)["spec"].get("holderIdentity", ""))


def test_of_two_operators_one_works(demo: Demo, release: Release, audit: AuditLog) -> None:
    eventually(
        release.pods, lambda pods: len(pods) == 2 and all(pod.ready for pod in pods), what="two operators, both ready"
    )
    works = eventually(lambda: holder(demo), what="somebody who works")
    audit.mark()
    with pods_watched(demo.kubectl, BROKERS, count=3) as watch:
        change(demo, {"brokers": {"config": {STATIC: one_more(demo)}}})
        eventually(lambda: renewed(watch.changes()), lambda order: len(order) == 3, what="a roll", seconds=ROLL_SECONDS)
        demo.await_ready(ROLL_SECONDS)
        assert len(most_away(watch.changes())) <= 1

    assert holder(demo) == works
    working = [pod for pod in release.pods() if pod.name in works]
    assert len(working) == 1, f"the Lease names {works}"
    reported = {
        event["reportingInstance"]
        for event in demo.kubectl.list("events")
        if event["involvedObject"]["kind"] == "Cluster"
    }
    assert working[0].name in reported


def test_a_second_release_by_mistake_is_refused(release: Release) -> None:
    second = Release(helm=release.helm, kubectl=release.kubectl.within("odradek-second"), name="another")
    try:
        with pytest.raises(HelmError, match="exists and cannot be imported"):
            second.install()
        assert not second.pods()
    finally:
        second.uninstall()
        second.kubectl.delete("namespace", "odradek-second")
