"""`odradek-pod zookeeper` for real: an ensemble of one on this machine, scraped, probed, stopped and resumed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from odradek.testing.waiting import wait_until
from odradek_operator.embedded.ports import free_ports
from odradek_operator.objects.properties_file import render
from odradek_operator.pod.mntr import SERIES, Kind

pytestmark = [pytest.mark.java, pytest.mark.slow]

PROPERTIES = {
    "tickTime": "500",
    "initLimit": "20",
    "syncLimit": "20",
    "quorumListenOnAllIPs": "true",
    "standaloneEnabled": "false",
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "mntr,ruok,srvr",
}


@dataclass(frozen=True, kw_only=True)
class Running:
    """One member, as its pod would run it."""

    process: subprocess.Popen[bytes]
    url: str
    client_port: int

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.url + path, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def is_serving(self) -> bool:
        assert self.process.poll() is None, "the member has ended"
        return self.get("/readyz")[0] == 200

    def samples(self) -> dict[str, tuple[dict[str, str], float]]:
        families = text_string_to_metric_families(self.get("/metrics")[1])
        return {sample.name: (sample.labels, sample.value) for family in families for sample in family.samples}


@contextmanager
def member(folder: Path, *, ordinal: int = 0) -> Iterator[Running]:
    """Run the ensemble's last member in a folder that it finds again."""
    client, metrics, peer, election = free_ports(4)
    folder.mkdir(exist_ok=True)
    properties = {**PROPERTIES, "dataDir": str(folder / "data"), "clientPort": str(client)}
    (folder / "zookeeper.properties").write_text(render(properties, header="test"))
    arguments = [
        "zookeeper",
        f"--properties={folder / 'zookeeper.properties'}",
        f"--folder={folder}",
        "--metrics-host=127.0.0.1",
        f"--metrics-port={metrics}",
        f"--hosts={','.join(['127.0.0.1'] * (ordinal + 1))}",
        f"--peer-port={peer}",
        f"--election-port={election}",
    ]
    environment = {
        **os.environ,
        "CLUSTER": "demo",
        "POD_NAME": f"demo-zookeeper-{ordinal}",
        "POD_NAMESPACE": "events",
        "ENSEMBLE_REPLICAS": str(ordinal + 1),
        "ZOOKEEPER_HEAP_MIB": "96",
    }
    command = [str(Path(sys.executable).with_name("odradek-pod")), *arguments]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield Running(process=process, url=f"http://127.0.0.1:{metrics}", client_port=client)
        finally:
            process.terminate()
            process.wait(60)


def client_port_answers(running: Running) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", running.client_port)) == 0


def test_metrics_probes_and_an_orderly_end(tmp_path: Path) -> None:
    with member(tmp_path) as running:
        wait_until(running.is_serving, what="serving")
        assert running.get("/livez") == (200, "ZooKeeper answers ruok: imok\n")
        assert running.get("/readyz") == (200, "ZooKeeper answers srvr: it is leader\n")
        samples = running.samples()
        wanted = {series.name + ("_total" if series.kind is Kind.COUNTER else "") for series in SERIES}
        assert wanted <= set(samples)
        assert samples["zookeeper_quorumsize"] == ({}, 1)
        assert samples["zookeeper_inmemorydatatree_nodecount"][0] == {"replicaId": "1", "memberType": "Leader"}
        # A Java process, not the small Python one that serves this.
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
    """The one child of the pod's process."""
    (child,) = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children").read_text().split()
    return int(child)


def test_the_volume_of_another_member_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/myid").write_text("1\n")
    with member(tmp_path, ordinal=1) as running:
        assert running.process.wait(60) == 1
    assert "this pod is member 2" in (tmp_path / "log").read_text()
