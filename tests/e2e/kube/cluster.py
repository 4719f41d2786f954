"""A whole cluster: start it, break and repair parts of it, and remove it.

`Cluster` is for the fixtures and the command. Everybody may use its `kubeconfig`. Invariants: leftovers of dead runs
are removed before anything is created; whatever ends the `with` block (an exception, Ctrl-C or SIGTERM), the cluster is
removed; a second signal does not interrupt the removal.
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
        """Create the object only. Call `start` or `attach` instead."""
        self.run: Final = run_of
        self.programs: Final = programs
        self._heart: Process | None = None

    @classmethod
    def start(cls, nodes: int, *, name: str | None = None, say: Callable[[str], None]) -> Self:
        """Start a cluster of 1 to 4 nodes and wait until all are Ready. If that fails, remove what was started."""
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
        """Return the cluster that `start` created under a name, possibly in another process."""
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
        """The audit log: every request to the API server, one JSON event per line."""
        return self.run.audit_log

    def environment(self) -> dict[str, str]:
        """The environment variables with which a shell uses this cluster and its kubectl and helm."""
        return {"KUBECONFIG": str(self.kubeconfig), "PATH": f"{self.programs}:{os.environ.get('PATH', '')}"}

    def node_folder(self, number: int) -> Path:
        """The folder that is a node's disk. Its content survives `kill_node`."""
        return self.run.node(number)

    def node_address(self, number: int) -> str:
        """The address under which this machine reaches the node ports of a node."""
        return self.run.plan.node(number)

    def ready_nodes(self) -> int:
        """The number of nodes that are Ready."""
        listed = run(
            [self.programs / "kubectl", "--kubeconfig", self.kubeconfig, "get", "nodes", "-o", "json"], check=False
        )
        nodes = json.loads(listed)["items"] if listed else []
        conditions = [condition for item in nodes for condition in item["status"].get("conditions", [])]
        return sum(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)

    def load(self, archive: Path) -> None:
        """Load an image archive into every running node, in parallel."""
        self._on_nodes(lambda number: node.load(self.run, number, archive), only_running=True)

    def tag(self, reference: str, other: str) -> None:
        """Give an image on all nodes another name, so that it looks like a new version."""
        self._on_nodes(lambda number: node.tag(self.run, number, reference, other), only_running=True)

    def kill_node(self, number: int) -> None:
        """Kill a node and everything that runs on it, like a power cut. It stays down until `start_node`."""
        node.kill(self.run, self._known(number))

    def start_node(self, number: int) -> None:
        """Start a killed node with its old disk. Does not wait until the node is Ready."""
        node.start(self.run, self.programs, self._known(number))

    def stop_api_server(self) -> None:
        """Kill the API server."""
        control_plane.stop_api_server(self.run)

    def start_api_server(self) -> None:
        """Start the API server and wait until it is ready."""
        control_plane.start_api_server(self.run, self.programs)

    def mend(self) -> None:
        """Start everything that was stopped or killed, and wait until all nodes are Ready."""
        self.start_api_server()
        for number in self.run.numbers:
            self.start_node(number)
        self._await_nodes()

    def keep(self) -> None:
        """Let the cluster outlive this process. From now on the cluster counts as left behind when its etcd ends."""
        if self._heart is None:
            raise HarnessError("only who started a cluster can hand it over")
        self.run.owned_by(self._heart)

    def down(self) -> None:
        """Stop and remove the whole cluster. May be called again."""
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
    """Run a cluster for the duration of the block, and remove it however the block ends."""
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
    """Within the block, SIGTERM and SIGHUP end the program like Ctrl-C, so that every `finally` runs."""
    with _handled(_end):
        yield


@contextmanager
def undisturbed() -> Iterator[None]:
    """Within the block, ignore signals that ask this program to end."""
    with _handled(signal.SIG_IGN):
        yield


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can set handlers, and signals interrupt only the main thread
        return
    before = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
