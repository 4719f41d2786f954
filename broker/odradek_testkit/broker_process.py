"""Runs an Odradek broker as a separate process, next to Apache Kafka's brokers or on a directory of one of them.

`apache.ApacheBroker` is its counterpart, with the same methods.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odradek.testing.free_ports import free_ports
from odradek.testing.waiting import wait_until

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_STOP_SECONDS: Final = 60.0


class OdradekBroker:
    """An Odradek broker without its parent process. Its files are in `directory`, its data in `directory/data`."""

    def __init__(
        self,
        directory: Path,
        *,
        zookeeper: str,
        properties: Mapping[str, str],
        broker_id: int = 0,
        port: int | None = None,
        program: Sequence[str] = ("odradek.cli.main", "broker"),
    ) -> None:
        """`properties` extend or override id, listener, directory and ensemble. Without a port, a free one is used.

        `program`: the module that is run, and its first arguments. Starts nothing yet."""
        self.port: Final = port or free_ports(1)[0]
        self._program = program
        self._log = directory / "odradek.log"
        settings = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(directory / "data"),
            "zookeeper.connect": zookeeper,
            "metrics.port": "0",
            "process.supervision.enable": "false",
            **properties,
        }
        directory.mkdir(parents=True, exist_ok=True)
        self._properties = directory / "odradek.properties"
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id. Raises an error if the broker does not run."""
        assert self._process is not None, "the broker does not run"
        return self._process.pid

    def start(self) -> None:
        """Start the broker and wait until a client gets metadata. Raises `AssertionError` with its log if it ends."""
        from confluent_kafka.admin import AdminClient

        self.launch()
        bootstrap = f"127.0.0.1:{self.port}"
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        wait_until(lambda: self._ended() or _serves(admin), what=f"the start of the Odradek broker on {bootstrap}")
        assert not self._ended(), self._log.read_text()[-4000:]

    def launch(self) -> None:
        """Start the process without waiting."""
        with self._log.open("ab") as out:
            command = [sys.executable, "-m", *self._program, str(self._properties)]
            self._process = subprocess.Popen(command, stdout=out, stderr=out)

    def _ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return not self._ended()

    def stop(self, *, kill: bool = False) -> int | None:
        """Stop the broker cleanly or kill it. Returns the exit code; None if it did not run. Idempotent."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            os.kill(process.pid, signal.SIGKILL if kill else signal.SIGTERM)
        return None if process is None else process.wait(timeout=_STOP_SECONDS)

    def log(self) -> str:
        """Return what it has logged."""
        return self._log.read_text()

    def errors(self) -> list[str]:
        """Return the lines of its log with an error."""
        return [line for line in self.log().splitlines() if re.search(r" (ERROR|CRITICAL) ", line)]


def _serves(admin: AdminClient) -> bool:
    from confluent_kafka import KafkaException

    try:
        return bool(admin.list_topics(timeout=1).brokers)
    except KafkaException:
        return False
