"""A whole cluster: start it, hurt it, take it down.

Enters: a number of nodes. Leaves: `Cluster`, whose `kubeconfig` everybody may use. Called by the fixtures and by the
command. Invariants: before anything is made, leftovers of dead runs are swept; whatever ends the `with` block, an
exception, Ctrl-C or SIGTERM, the cluster is taken down; a second signal does not break the taking down off.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final, Self

from kube import binaries, certificates, control_plane, dns, leftovers, network, node, packages, pause, state
from kube.host import HarnessError, Process, run, until

_READY_SECONDS: Final = 180.0
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Cluster:
    """A cluster that runs on this machine. Methods block until they are done and raise `HarnessError`."""

    def __init__(self, run_of: state.Run, programs: Path) -> None:
        """Use `start` or `attach`."""
        self.run: Final = run_of
        self.programs: Final = programs
        self._heart: Process | None = None

    @classmethod
    def start(cls, nodes: int, *, name: str | None = None, say: Callable[[str], None]) -> Self:
        """Start a cluster of 1 to 4 nodes and wait until all are Ready; half a cluster is taken down again."""
        if not 1 <= nodes <= network.MAXIMUM_NODES:
            raise HarnessError(f"{nodes} nodes: this harness starts 1 to {network.MAXIMUM_NODES}")
        packages.ensure(say)
        programs = binaries.ensure(say)
        with state.registry_lock():
            leftovers.sweep(say)
            plan = network.choose(network.used_networks(), state.live_slots())
            cluster = cls(state.create(nodes, name, plan), programs)
        try:
            cluster._build()
        except BaseException:
            cluster.down()
            raise
        return cluster

    @classmethod
    def attach(cls, name: str, *, say: Callable[[str], None]) -> Self:
        """The cluster that `start` made under a name, perhaps in another process."""
        folder = state.named_folder(name)
        found = state.load(folder)
        if found is None:
            raise HarnessError(f"there is no cluster in {folder}")
        return cls(found, binaries.ensure(say))

    def _build(self) -> None:
        made = self.run
        network.build(made.tag, made.plan, made.nodes)
        certificates.build(made)
        pause.write(self.programs / "pause", node.PAUSE_IMAGE, made.folder / "pause.tar")
        self._heart = control_plane.start(made, self.programs)
        dns.start(made, self.programs)
        for number in made.numbers:
            node.prepare(made, number)
        self._on_nodes(lambda number: node.start(made, self.programs, number))
        self._await_nodes()

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.run.kubeconfig

    @property
    def audit_log(self) -> Path:
        """Every request to the API server, one JSON event a line."""
        return self.run.audit_log

    def environment(self) -> dict[str, str]:
        """What a shell needs to talk to this cluster with the right kubectl and helm."""
        return {"KUBECONFIG": str(self.kubeconfig), "PATH": f"{self.programs}:{os.environ.get('PATH', '')}"}

    def node_folder(self, number: int) -> Path:
        """A node's disk: what lies in it outlives `kill_node`."""
        return self.run.node(number)

    def node_address(self, number: int) -> str:
        """Where node ports of this node are reached from this machine."""
        return self.run.plan.node(number)

    def ready_nodes(self) -> int:
        """How many nodes Kubernetes calls Ready."""
        listed = run(
            [self.programs / "kubectl", "--kubeconfig", self.kubeconfig, "get", "nodes", "-o", "json"], check=False
        )
        nodes = json.loads(listed)["items"] if listed else []
        conditions = [condition for item in nodes for condition in item["status"].get("conditions", [])]
        return sum(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)

    def load(self, archive: Path) -> None:
        """Bring an image archive to every node that runs, side by side."""
        self._on_nodes(lambda number: node.load(self.run, number, archive), only_running=True)

    def tag(self, reference: str, other: str) -> None:
        """Give an image that all nodes have one more name, as a new version of the same."""
        self._on_nodes(lambda number: node.tag(self.run, number, reference, other), only_running=True)

    def kill_node(self, number: int) -> None:
        """Lose a node with all that runs on it, as by a power cut. It stays away until `start_node`."""
        node.kill(self.run, self._known(number))

    def start_node(self, number: int) -> None:
        """Bring a killed node back with its old disk; does not wait until it is Ready."""
        node.start(self.run, self.programs, self._known(number))

    def stop_api_server(self) -> None:
        """End the API server at once."""
        control_plane.stop_api_server(self.run)

    def start_api_server(self) -> None:
        """Bring the API server back and wait until it is ready."""
        control_plane.start_api_server(self.run, self.programs)

    def mend(self) -> None:
        """Bring back everything that was stopped or killed, and wait until all nodes are Ready."""
        self.start_api_server()
        for number in self.run.numbers:
            self.start_node(number)
        self._await_nodes()

    def keep(self) -> None:
        """Let the cluster outlive this process: from now on it is left behind when its etcd ends."""
        if self._heart is None:
            raise HarnessError("only who started a cluster can hand it over")
        self.run.owned_by(self._heart)

    def down(self) -> None:
        """Take everything down and remove it; may be called again."""
        with undisturbed():
            leftovers.demolish(self.run.tag, self.run.folder)

    def _await_nodes(self) -> None:
        until(lambda: self.ready_nodes() == self.run.nodes, what="readiness of all nodes", seconds=_READY_SECONDS)

    def _known(self, number: int) -> int:
        if number not in self.run.numbers:
            raise HarnessError(f"there is no node {number}: this cluster has {self.run.nodes}")
        return number

    def _on_nodes(self, action: Callable[[int], None], *, only_running: bool = False) -> None:
        numbers = [
            number
            for number in self.run.numbers
            if not only_running or self.run.process(f"containerd-{node.name_of(number)}")
        ]
        with ThreadPoolExecutor(max_workers=network.MAXIMUM_NODES) as pool:
            for _ in pool.map(action, numbers):
                pass


@contextmanager
def running(nodes: int, *, say: Callable[[str], None]) -> Iterator[Cluster]:
    """A cluster for the length of a block, whatever ends the block."""
    with ended_by_signals():
        cluster = Cluster.start(nodes, say=say)
        try:
            yield cluster
        finally:
            cluster.down()


def _end(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt(f"signal {signal.Signals(number).name}")


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Within the block, SIGTERM and SIGHUP end the program as Ctrl-C does: through every `finally`."""
    with _handled(_end):
        yield


@contextmanager
def undisturbed() -> Iterator[None]:
    """Within the block, signals that ask this program to end are not heard."""
    with _handled(signal.SIG_IGN):
        yield


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers belong to the main thread, which is the only one that signals interrupt
        return
    before = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
