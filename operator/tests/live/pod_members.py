"""Members of an ensemble that run with the command of their pod, on loopback addresses."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kazoo.client import KazooClient
from prometheus_client.parser import text_string_to_metric_families

from odradek.testing.free_ports import free_ports
from odradek_operator.objects import names
from odradek_operator.objects.properties_file import render

PROPERTIES = {
    "tickTime": "500",
    "initLimit": "20",
    "syncLimit": "20",
    "standaloneEnabled": "false",
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "mntr,ruok,srvr",
}


@dataclass(frozen=True, kw_only=True)
class Running:
    """A running member, started with the command of its pod."""

    process: subprocess.Popen[bytes]
    url: str
    client_port: int
    log_file: Path

    def put(self, path: str, value: bytes) -> None:
        with self._client() as client:
            client.create(path, value)

    def value(self, path: str) -> bytes:
        with self._client() as client:
            found: bytes = client.get(path)[0]
            return found

    @contextmanager
    def _client(self) -> Iterator[KazooClient]:
        client = KazooClient(f"127.0.0.1:{self.client_port}")
        client.start(timeout=60)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def has_said(self, words: str) -> bool:
        return words in self.log_file.read_text(errors="replace")

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


@dataclass(frozen=True, kw_only=True)
class Ensemble:
    """The size and the ports of an ensemble. All members use the same ports, each on its own loopback address."""

    members: int
    peer: int
    election: int

    @classmethod
    def of(cls, members: int) -> Ensemble:
        peer, election = free_ports(2)
        return cls(members=members, peer=peer, election=election)


@contextmanager
def member(
    folder: Path,
    *,
    ordinal: int = 0,
    ensemble: Ensemble | None = None,
    state: str | None = None,
    more: Mapping[str, str] | None = None,
) -> Iterator[Running]:
    """Run a member on the data in a folder. Without `ensemble`, it is the last member of a new one.

    `state` is the state of the ensemble as the operator writes it; None for an operator that writes none. `more`
    properties override the others.
    """
    client, metrics = free_ports(2)
    found = ensemble or Ensemble.of(ordinal + 1)
    folder.mkdir(exist_ok=True)
    listen_on_all = "false" if ensemble else "true"
    properties = {
        **PROPERTIES,
        "quorumListenOnAllIPs": listen_on_all,
        "dataDir": str(folder / "data"),
        "clientPort": str(client),
        **(more or {}),
    }
    (folder / "zookeeper.properties").write_text(render(properties, header="test"))
    if state is not None:
        (folder / names.ENSEMBLE_STATE).write_text(state)
    arguments = [
        "zookeeper",
        f"--properties={folder / 'zookeeper.properties'}",
        f"--folder={folder}",
        "--metrics-host=127.0.0.1",
        f"--metrics-port={metrics}",
        f"--hosts={','.join(f'127.0.0.{number + 1}' if ensemble else '127.0.0.1' for number in range(found.members))}",
        f"--peer-port={found.peer}",
        f"--election-port={found.election}",
    ]
    environment = {
        **os.environ,
        "CLUSTER": "demo",
        "POD_NAME": f"demo-zookeeper-{ordinal}",
        "POD_NAMESPACE": "events",
        "ENSEMBLE_REPLICAS": str(found.members),
        "ZOOKEEPER_HEAP_MIB": "96",
        # A member runs for seconds only, so the second compiler of the JVM costs more than it gains.
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",
    }
    command = [str(Path(sys.executable).with_name("odradek-pod")), *arguments]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield Running(
                process=process, url=f"http://127.0.0.1:{metrics}", client_port=client, log_file=folder / "log"
            )
        finally:
            process.terminate()
            process.wait(60)
