"""`odradek-pod zookeeper` with a real ZooKeeper: metrics, probes, stop, restart, and changes of the ensemble."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from odradek.testing.waiting import wait_until
from odradek_operator.ensemble.mntr import SERIES, SeriesKind
from odradek_operator.objects import names

from .pod_members import Ensemble, Running, member

pytestmark = [pytest.mark.java, pytest.mark.slow]


def client_port_answers(running: Running) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", running.client_port)) == 0


def test_metrics_probes_and_an_orderly_end(tmp_path: Path) -> None:
    with member(tmp_path) as running:
        wait_until(running.is_serving, what="serving")
        assert running.get("/livez") == (200, "ZooKeeper answers ruok: imok\n")
        assert running.get("/readyz") == (200, "ZooKeeper answers srvr: it is leader\n")
        samples = running.samples()
        wanted = {series.name + ("_total" if series.kind is SeriesKind.COUNTER else "") for series in SERIES}
        assert wanted <= set(samples)
        assert samples["zookeeper_quorumsize"] == ({}, 1)
        assert samples["zookeeper_inmemorydatatree_nodecount"][0] == {"replicaId": "1", "memberType": "Leader"}
        # The values are those of the Java process, not of the small Python process that serves the metrics.
        assert samples["jvm_threads_current"][1] > 10
        assert samples["jvm_memory_used_bytes"][1] > 50 << 20
        assert samples["process_open_fds"][1] > 30
        assert {"jvm_gc_collection_seconds_count", "jvm_gc_collection_seconds_sum"} <= set(samples)
        assert samples["jvm_gc_collection_seconds_count"][0]["gc"]
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(60) == 0
        assert not client_port_answers(running)
    with member(tmp_path) as again:
        wait_until(again.is_serving, what="serving from the same folder")


def test_java_dies_with_the_pods_process_and_the_pod_with_java(tmp_path: Path) -> None:
    with member(tmp_path) as running:
        wait_until(lambda: client_port_answers(running), what="listening")
        running.process.kill()
        running.process.wait(60)
        wait_until(lambda: not client_port_answers(running), what="Java's end")
    with member(tmp_path) as running:
        wait_until(lambda: client_port_answers(running), what="listening again")
        os.kill(java_of(running), signal.SIGKILL)
        assert running.process.wait(60) not in (0, None)


def java_of(running: Running) -> int:
    """Return the process id of Java, the only child of the pod's process."""
    (child,) = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children").read_text().split()
    return int(child)


def test_the_volume_of_another_member_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/myid").write_text("1\n")
    with member(tmp_path, ordinal=1) as running:
        assert running.process.wait(60) == 1
    assert "this pod is member 2" in (tmp_path / "log").read_text()


ELECTION_ROUNDS = 5
"""Number of election notifications after which an empty member counts as kept from voting."""


def ignored(running: Running) -> bool:
    """Whether the log of an empty member shows an election in which it had no vote."""
    return running.log_file.read_text(errors="replace").count("Notification") >= ELECTION_ROUNDS


def test_empty_members_cannot_outvote_an_old_one(tmp_path: Path) -> None:
    """An ensemble of one member with data grows to three. The two empty members are no majority without the old one."""
    alone = Ensemble.of(1)
    with member(tmp_path / "0", ensemble=alone, state=names.FORMING) as first:
        wait_until(first.is_serving, what="serving")
        first.put("/kept", b"1")
    three = Ensemble.of(3)
    with (
        member(tmp_path / "1", ordinal=1, ensemble=three, state=names.FORMED) as second,
        member(tmp_path / "2", ordinal=2, ensemble=three, state=names.FORMED) as third,
    ):
        wait_until(lambda: ignored(second) and ignored(third), what="an election without votes")
        assert not second.is_serving()
        assert not third.is_serving()
        with member(tmp_path / "0", ensemble=three, state=names.FORMED) as old:
            wait_until(lambda: client_port_answers(old), what="the old member listens")
            assert not any(one.is_serving() for one in (old, second, third))
    with member(tmp_path / "0", ensemble=alone, state=names.FORMED) as first:
        wait_until(first.is_serving, what="serving at its old size")
        assert first.value("/kept") == b"1"


def test_a_member_that_is_rebuilt_copies_from_the_leader_and_votes_then(tmp_path: Path) -> None:
    three = Ensemble.of(3)

    def run(ordinal: int, state: str) -> AbstractContextManager[Running]:
        return member(tmp_path / str(ordinal), ordinal=ordinal, ensemble=three, state=state)

    with run(0, names.FORMING) as first:
        with run(1, names.FORMING) as second, run(2, names.FORMING) as third:
            wait_until(lambda: all(one.is_serving() for one in (first, second, third)), what="a new ensemble")
            third.put("/kept", b"1")
        assert not (tmp_path / "1/data/initialize").exists()
        shutil.rmtree(tmp_path / "2")
        with run(1, names.FORMED) as second:
            wait_until(lambda: first.is_serving() and second.is_serving(), what="a majority without the third")
            with run(2, names.FORMED) as third:
                wait_until(third.is_serving, what="the third has copied")
                assert third.value("/kept") == b"1"
    # The rebuilt member now forms a majority with another one.
    with run(1, names.FORMED) as second, run(2, names.FORMED) as third:
        wait_until(lambda: second.is_serving() and third.is_serving(), what="a majority with the rebuilt one")
        assert third.value("/kept") == b"1"


def test_members_with_data_pass_an_upgrade_unharmed(tmp_path: Path) -> None:
    """The former operator does not write the state of the ensemble; the new one does."""
    with member(tmp_path) as before:
        wait_until(before.is_serving, what="serving")
        before.put("/kept", b"1")
    for state in (names.FORMING, names.FORMED):
        with member(tmp_path, state=state) as after:
            wait_until(after.is_serving, what="serving")
            assert after.value("/kept") == b"1"
