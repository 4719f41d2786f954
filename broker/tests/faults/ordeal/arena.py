"""The cluster of a fault run: three broker processes and a ZooKeeper server. Starts and ends faults.

A fault is a signal, a stop or a removed directory. `running` calls `begin` and `end` at the times of the plan.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from odradek.testing.free_ports import free_ports
from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until
from odradek_operator.embedded.layout import broker_directory
from odradek_operator.embedded.zookeeper_process import ZooKeeperServer
from ordeal.kinds import Fault, Kind, Timeouts

BROKERS: Final = 3
TOPIC: Final = "ordeal"


class Arena:
    """A context manager: `open` starts all processes, and closing ends them."""

    def __init__(self, directory: Path, *, partitions: int, timeouts: Timeouts) -> None:
        """`directory` gets all files."""
        self._directory: Final = directory
        self.zookeeper: Final = ZooKeeperServer(directory / "zookeeper", free_ports(1)[0], synchronous=False)
        self.cluster: Final = RunningCluster(
            directory / "cluster",
            brokers=BROKERS,
            topics={TOPIC: {"partitions": partitions, "replicas": BROKERS, "config": _TOPIC_CONFIG}},
            config={
                "zookeeper.session.timeout.ms": int(timeouts.session_ms),
                "process.hang.timeout.ms": int(timeouts.hang_ms),
            },
            zookeeper=self.zookeeper.connect,
            restart=True,
        )
        self._until_end: Final = ExitStack()

    def __enter__(self) -> Self:
        """Start ZooKeeper and the brokers. Return when all of them serve clients and the topic exists."""
        with ExitStack() as undo:
            undo.callback(self.zookeeper.stop)
            self.zookeeper.start()
            self.zookeeper.wait_until_ready()
            undo.callback(self.cluster.close)
            self.cluster.start()
            self._until_end.push(undo.pop_all())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop all processes in order."""
        self._until_end.close()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The addresses of the brokers by id."""
        return [self.cluster.address(broker) for broker in range(BROKERS)]

    def volume(self, broker: int) -> Path:
        """Return the only log directory of a broker."""
        return Path(broker_directory(self._directory / "cluster" / "data", broker)) / "volume-0"

    def begin(self, fault: Fault) -> float:
        """Begin a fault. Return the monotonic time in seconds just before."""
        return self._do(_BEGIN[fault.kind], fault)

    def end(self, fault: Fault) -> float:
        """End a fault, if it does not end by itself. Return the monotonic time just before."""
        return self._do(_END[fault.kind], fault)

    def _do(self, action: Callable[[Arena, Fault], None], fault: Fault) -> float:
        at = time.monotonic()
        action(self, fault)
        return at

    # ------------------------------------------------------------------------------------------------ brokers

    def _runs(self, broker: int) -> bool:
        """Return whether a broker is running. After an earlier fault, it may not have restarted yet."""
        return broker in self.cluster.pids

    def crash(self, fault: Fault) -> None:
        """Send SIGKILL to the broker process. Its parent ends its session, and the cluster starts it again."""
        broker = _broker(fault)
        if self._runs(broker):
            self.cluster.crash(broker)

    def hang(self, fault: Fault) -> None:
        """Send SIGSTOP to the broker process only. Its parent detects that it hangs, and kills it."""
        broker = _broker(fault)
        if self._runs(broker):
            os.kill(self.cluster.broker_pids[broker], signal.SIGSTOP)

    def lose(self, fault: Fault) -> None:
        """Send SIGKILL to the broker and its parent. Return when both have ended."""
        broker = _broker(fault)
        pid = self.cluster.broker_pids.get(broker)
        self.cluster.kill(broker)
        if pid is not None:
            wait_until(lambda: _has_ended(pid), what=f"the end of broker {broker}")

    def pause(self, fault: Fault) -> None:
        """Send SIGSTOP to the broker and its parent."""
        broker = _broker(fault)
        if self._runs(broker):
            self.cluster.pause(broker)

    def resume(self, fault: Fault) -> None:
        """Send SIGCONT to the broker and its parent."""
        broker = _broker(fault)
        if self._runs(broker):
            self.cluster.resume(broker)

    def stop(self, fault: Fault) -> None:
        """Send SIGTERM and wait until the process ends."""
        self.cluster.stop_broker(_broker(fault))

    def start(self, fault: Fault) -> None:
        """Start it again; it serves some time later."""
        self.cluster.start_broker(_broker(fault), wait=False)

    def wipe(self, fault: Fault) -> None:
        """Stop the broker and remove its log directory."""
        if fault.hard:
            self.lose(fault)
        else:
            self.stop(fault)
        shutil.rmtree(self.volume(_broker(fault)))

    # ------------------------------------------------------------------------------------------------ ZooKeeper

    def stop_zookeeper(self, fault: Fault) -> None:
        """Send SIGKILL or SIGTERM and wait until the process ends."""
        if fault.hard:
            self.zookeeper.child.kill()
        else:
            self.zookeeper.stop()

    def start_zookeeper(self, fault: Fault) -> None:
        """Start it again; it serves some time later."""
        self.zookeeper.start()

    def pause_zookeeper(self, fault: Fault) -> None:
        """Send SIGSTOP to the ZooKeeper server."""
        self.zookeeper.child.send(signal.SIGSTOP)

    def resume_zookeeper(self, fault: Fault) -> None:
        """Send SIGCONT to the ZooKeeper server."""
        self.zookeeper.child.send(signal.SIGCONT)

    def nothing(self, fault: Fault) -> None:
        """Do nothing: the fault ends by itself."""


def _has_ended(pid: int) -> bool:
    """Return whether a process that is not a child of this one has ended. It may be a zombie."""
    try:
        content = Path(f"/proc/{pid}/stat").read_text(encoding="latin-1")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return content.rpartition(")")[2].split()[0] == "Z"


def _broker(fault: Fault) -> int:
    if fault.broker is None:
        raise ValueError(f"the fault {fault} does not affect a broker")
    return fault.broker


_TOPIC_CONFIG: Final = {"min.insync.replicas": 2, "segment.bytes": 1 << 20}
"""Settings with small segments, so that some are full within half an hour."""

_Action = Callable[[Arena, Fault], None]

_BEGIN: Final[Mapping[Kind, _Action]] = {
    Kind.CRASH: Arena.crash,
    Kind.HANG: Arena.hang,
    Kind.MACHINE: Arena.lose,
    Kind.BLINK: Arena.pause,
    Kind.SLEEP: Arena.pause,
    Kind.SHUTDOWN: Arena.stop,
    Kind.WIPE: Arena.wipe,
    Kind.ZOOKEEPER_RESTART: Arena.stop_zookeeper,
    Kind.ZOOKEEPER_BLINK: Arena.pause_zookeeper,
    Kind.ZOOKEEPER_SLEEP: Arena.pause_zookeeper,
}
_END: Final[Mapping[Kind, _Action]] = {
    Kind.CRASH: Arena.nothing,
    Kind.HANG: Arena.nothing,
    Kind.MACHINE: Arena.start,
    Kind.BLINK: Arena.resume,
    Kind.SLEEP: Arena.resume,
    Kind.SHUTDOWN: Arena.start,
    Kind.WIPE: Arena.start,
    Kind.ZOOKEEPER_RESTART: Arena.start_zookeeper,
    Kind.ZOOKEEPER_BLINK: Arena.resume_zookeeper,
    Kind.ZOOKEEPER_SLEEP: Arena.resume_zookeeper,
}
