"""A standalone ZooKeeper server on the loopback address as a child process, with the jars of PySpark.

Used by `embedded/embedded_cluster` and by tests.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Final

from odradek_operator.embedded.child import ChildProcess, system_error
from odradek_operator.embedded.ports import LOOPBACK, PortUse, check_ports
from odradek_operator.ensemble.java import java_command, zookeeper_class_path
from odradek_operator.errors import EmbeddedError

START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05
_HEAP_MEGABYTES: Final = 192
_MAIN_CLASS: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"

TICK_MS: Final = 500
"""`tickTime` in milliseconds. The default of 2000 would not allow sessions shorter than 4 s."""

MIN_SESSION_MS: Final = 1_000
MAX_SESSION_MS: Final = 60_000
"""The default of 20 ticks would be less than the 18 s that brokers request."""

_CONFIG: Final = """\
tickTime={tick}
minSessionTimeout={least}
maxSessionTimeout={most}
dataDir={data}
clientPort={port}
clientPortAddress={host}
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr,ruok,mntr
autopurge.purgeInterval=1
autopurge.snapRetainCount=3
"""

_LOGGING: Final = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1} %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""


class ZooKeeperServer:
    """One server: `start`, `wait_until_ready`, `stop`. It keeps its data when it is started again."""

    def __init__(self, directory: Path, port: int, *, jars: Path | None = None, synchronous: bool = True) -> None:
        """`directory` contains its data, configuration and log.

        `synchronous=False` skips the fsync of each write, for tests whose data does not have to survive a power
        failure.
        """
        self.directory: Final = directory
        self.port: Final = port
        self._jars = jars
        self._synchronous = synchronous
        self._child: ChildProcess | None = None

    @property
    def connect(self) -> str:
        """Connect string, `host:port`."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def child(self) -> ChildProcess:
        """Return its process. Raises `EmbeddedError` before the first start."""
        if self._child is None:
            raise EmbeddedError("ZooKeeper has not been started.")
        return self._child

    @property
    def running(self) -> bool:
        """Whether its process is running."""
        return self._child is not None and self._child.running

    def start(self) -> None:
        """Start it unless it is running. Blocks only for the check of the Java version."""
        if self.running:
            return
        check_ports([PortUse(self.port, "ZooKeeper", "--zookeeper-port")])
        if self._child is None:
            self._child = ChildProcess("zookeeper", self._command(), self.directory / "zookeeper.log")
        self._child.start()

    def wait_until_ready(self, timeout_seconds: float = START_SECONDS) -> None:
        """Block until it serves. Raises `EmbeddedError` with the end of its log if it ended or took too long."""
        deadline = time.monotonic() + timeout_seconds
        while not self.ready():
            if not self.child.running:
                raise EmbeddedError(f"ZooKeeper {self.child.how_it_ended()}")
            if time.monotonic() > deadline:
                raise EmbeddedError(
                    f"ZooKeeper did not answer on {self.connect} within {timeout_seconds:g} s: "
                    f"see its log {self.child.log_path}."
                )
            time.sleep(_POLL_SECONDS)

    def ready(self) -> bool:
        """Whether it serves. A server that is still loading accepts connections, too, but has no mode yet."""
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=1) as connection:
                connection.sendall(b"srvr")
                answer = b""
                while chunk := connection.recv(4096):
                    answer += chunk
        except OSError:
            return False
        return b"Mode: " in answer

    def stop(self) -> None:
        """Stop it and block until it has ended. Idempotent."""
        if self._child is not None:
            self._child.stop(_STOP_SECONDS)

    def _command(self) -> list[str]:
        java = java_command()
        class_path = zookeeper_class_path(self._jars)
        config, logging = self.directory / "zoo.cfg", self.directory / "log4j2.properties"
        try:
            data = self.directory / "data"
            data.mkdir(parents=True, exist_ok=True)
            config.write_text(
                _CONFIG.format(
                    tick=TICK_MS,
                    least=MIN_SESSION_MS,
                    most=MAX_SESSION_MS,
                    data=data.resolve(),
                    port=self.port,
                    host=LOOPBACK,
                ),
                encoding="utf-8",
            )
            logging.write_text(_LOGGING, encoding="utf-8")
        except OSError as error:
            raise EmbeddedError(system_error("ZooKeeper's files cannot be written", error)) from error
        return [
            java,
            f"-Xmx{_HEAP_MEGABYTES}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",  # Quick to start; a server of a few hundred requests per second needs no more.
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={logging.resolve()}",
            "-Dzookeeper.jmx.log4j.disable=true",
            "-Dzookeeper.preAllocSize=4096",  # Kilobytes; the default reserves 64 MiB for each transaction log.
            f"-Dzookeeper.forceSync={'yes' if self._synchronous else 'no'}",
            "-cp",
            class_path,
            _MAIN_CLASS,
            str(config.resolve()),
        ]
