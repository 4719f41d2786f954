"""Runs Apache Kafka as a reference: its jars from Maven Central, its tools and brokers as child processes.

`jars` downloads the jars of a version once into a cache folder; `run_tool` and `Tools` run its command-line classes;
`ApacheBroker` runs a broker in ZooKeeper mode, for comparisons and mixed clusters, `KraftBroker` one in KRaft mode.
"""

from __future__ import annotations

import base64
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

from odradek.base.errors import OdradekError
from odradek.testing.free_ports import free_ports

SLF4J_VERSION: Final = "1.7.36"
OTHER_LOGGERS: Final = "slf4j-reload4j,log4j-slf4j-impl,slf4j-log4j12"
"""SLF4J backends that Kafka depends on. With a second one on the class path, it is undefined which one logs."""

SPARK_CONNECTOR_VERSION: Final = "4.2.0"
_KAFKA: Final = "org.apache.kafka"
_SPARK_CONNECTOR: Final = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_CONNECTOR_VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", SPARK_CONNECTOR_VERSION),
    (_KAFKA, "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
"""The connector is not in PySpark."""

_AWS_VERSION: Final = "2.57.8"
_AWS: Final = tuple(
    ("software.amazon.awssdk", name, _AWS_VERSION)
    for name in ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
)
"""The parts of the AWS SDK that Hadoop's client of S3 uses. The artifact that it depends on has all of AWS (600 MB)."""
_S3_READER: Final = ("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1")

START_SECONDS: Final = 120.0
QUICK_START: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
"""JVM options for short runs: they save a third of the CPU time at the cost of throughput."""
_ARCHIVED_JARS: Final = ("kafka", "scala-library", "jackson", "jopt", "zookeeper", "slf4j")
"""Beginnings of the names of the jars from which tools and brokers load most of their classes."""
_CLASS_FILE: Final = ".class"

_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>odradek</groupId><artifactId>interop</artifactId><version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY: Final = (
    "    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)


class InteropError(OdradekError):
    """Apache Kafka could not be downloaded or did not start."""


def jars(version: str, cache: Path) -> Path:
    """Return the folder with all jars of Apache Kafka `version`, 0.8.2 or later. Maven downloads them if necessary.

    Raises `InteropError` if Maven is missing or fails.
    """
    return _downloaded(cache.absolute() / f"kafka-{version}", _kafka(version))


def client_jars(version: str, cache: Path) -> Path:
    """Return the folder with the jars of the Java clients only. Raises `InteropError` if Maven is missing or fails."""
    return _downloaded(cache.absolute() / f"kafka-clients-{version}", [(_KAFKA, "kafka-clients", version)])


def streams_jars(version: str, cache: Path) -> Path:
    """Return the folder with the jars of Kafka Streams `version`. Raises `InteropError` if Maven is missing or
    fails."""
    return _downloaded(cache.absolute() / f"kafka-streams-{version}", [(_KAFKA, "kafka-streams", version)])


def mirror_jars(version: str, cache: Path) -> Path:
    """Return the folder with the jars of MirrorMaker 2 `version`. Raises `InteropError` if Maven is missing or
    fails."""
    artifacts = [(_KAFKA, "connect-mirror", version), (_KAFKA, "connect-mirror-client", version)]
    return _downloaded(cache.absolute() / f"kafka-mirror-{version}", artifacts)


def spark_connector_jars(cache: Path) -> list[Path]:
    """Return the jars of Spark's own connector for Kafka, for the setting `spark.jars`: the connector and what it needs
    beside the jars of PySpark. Raises `InteropError` if Maven is missing or fails."""
    folder = cache.absolute() / f"spark-connector-{SPARK_CONNECTOR_VERSION}"
    return sorted(_downloaded(folder, _SPARK_CONNECTOR, transitive=False).glob("*.jar"))


def s3_jars(cache: Path, hadoop: str) -> list[Path]:
    """Return the jars of Hadoop's client of S3, for the setting `spark.jars`. `hadoop`: the version in PySpark.

    Raises `InteropError` if Maven is missing or fails.
    """
    folder = cache.absolute()
    client = [("org.apache.hadoop", "hadoop-aws", hadoop), _S3_READER]
    found = [
        *_downloaded(folder / f"hadoop-aws-{hadoop}", client, transitive=False).glob("*.jar"),
        *_downloaded(folder / f"aws-{_AWS_VERSION}", _AWS).glob("*.jar"),
    ]
    return sorted(path for path in found if not path.name.startswith("slf4j-"))


def _downloaded(folder: Path, artifacts: Sequence[tuple[str, str, str]], *, transitive: bool = True) -> Path:
    if (folder / ".complete").exists():
        return folder
    if shutil.which("mvn") is None:
        raise InteropError("Maven ('mvn') is needed to download Apache Kafka: install it (Debian: maven).")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "download.lock").open("w") as lock:
        # Several test processes may need jars at the same time, and Maven does not lock its local repository.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".complete").exists():
            _download(folder, artifacts, transitive)
    return folder


def _download(folder: Path, artifacts: Sequence[tuple[str, str, str]], transitive: bool) -> None:
    """Download artifacts (group, name, version). If `transitive`, also their dependencies and a logger."""
    wanted = [*artifacts, ("org.slf4j", "slf4j-simple", SLF4J_VERSION)] if transitive else artifacts
    pom = folder / "pom.xml"
    dependencies = "\n".join(_DEPENDENCY.format(*each) for each in wanted)
    pom.write_text(_POM.format(dependencies=dependencies), encoding="utf-8")
    command = ["mvn", "--batch-mode", "--quiet", "-f", str(pom), "dependency:copy-dependencies"]
    options = [f"-DoutputDirectory={folder}", f"-DexcludeArtifactIds={OTHER_LOGGERS}"]
    options += [] if transitive else ["-DexcludeTransitive=true"]
    result = subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=900)
    if result.returncode != 0:
        raise InteropError(f"Maven could not download {folder.name}: {result.stdout[-2000:]}")
    (folder / ".complete").touch()


def _kafka(version: str) -> list[tuple[str, str, str]]:
    """Return the artifacts of a release: the broker with its clients, and the tools if they are separate."""
    if int(version.partition(".")[0]) < 3:
        return [(_KAFKA, "kafka_2.11", version)]
    return [(_KAFKA, "kafka_2.13", version), (_KAFKA, "kafka-tools", version)]


def quick_start(folder: Path) -> list[str]:
    """Return JVM options for short runs of Kafka's programs in `folder`: `QUICK_START` and an archive of their classes.

    The archive halves the CPU time of a start. The first call creates it beside the folder, in 15 s of CPU time.
    Raises `InteropError` if that fails.
    """
    archive = folder.with_name(f"{folder.name}.jsa")
    if not archive.exists():
        with (folder.parent / f"{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not archive.exists():
                _archive_classes(folder, archive)
    return [*QUICK_START, f"-XX:SharedArchiveFile={archive}"]


def _archive_classes(folder: Path, archive: Path) -> None:
    """Create an archive of the classes in Kafka's jars, and of those of the JDK that most programs load."""
    common = _java_home() / "lib/classlist"
    if not common.exists():
        raise InteropError(f"{common} is missing: install a complete JDK.")
    wanted = archive.with_suffix(".classes")
    wanted.write_text("\n".join([common.read_text(encoding="utf-8"), *_class_names(folder)]), encoding="utf-8")
    part = archive.with_suffix(".part")
    options = ["-Xshare:dump", f"-XX:SharedClassListFile={wanted}", f"-XX:SharedArchiveFile={part}", *QUICK_START]
    command = ["java", *options, "-cp", f"{folder}/*"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    wanted.unlink()
    if result.returncode != 0 or not part.exists():
        raise InteropError(f"java could not archive the classes of {folder.name}: {result.stdout[-2000:]}")
    part.rename(archive)


def _java_home() -> Path:
    """Return the folder of the JDK. The command `java` may be a script elsewhere."""
    command = ["java", "-XshowSettings:properties", "-version"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    found = re.search(r"^ *java\.home = (.*)$", result.stderr, re.MULTILINE)
    if found is None:
        raise InteropError(f"java did not print its folder (java.home): {result.stderr[-2000:]}")
    return Path(found[1])


def _class_names(folder: Path) -> Iterator[str]:
    """Yield the names of the classes to archive, with slashes."""
    for path in sorted(folder.glob("*.jar")):
        if not path.name.startswith(_ARCHIVED_JARS):
            continue
        with zipfile.ZipFile(path) as jar:
            for name in jar.namelist():
                if name.endswith(_CLASS_FILE) and not name.startswith("META-INF/") and not name.endswith("-info.class"):
                    yield name.removesuffix(_CLASS_FILE)


def compile_java(folder: Path, sources: Sequence[Path], target: Path) -> None:
    """Compile against the jars in `folder` into `target`. Raises `InteropError` with the output of the compiler."""
    if shutil.which("javac") is None:
        raise InteropError("A Java compiler ('javac') is needed: install a JDK, not only a JRE.")
    command = ["javac", "-nowarn", "-proc:none", "-Xlint:-options", "-cp", f"{folder}/*", "-d", str(target)]
    options = ["-J-XX:TieredStopAtLevel=1", *map(str, sources)]
    result = subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=120)
    if result.returncode != 0:
        raise InteropError(f"javac failed: {result.stdout[-2000:]}{result.stderr[-2000:]}")


def java_command(
    folder: Path, main_class: str, *, heap: str, options: Sequence[str] = (), classes: Path | None = None
) -> list[str]:
    """Return the command that runs a class of the jars in `folder`. It logs only errors, to standard error.

    `options` are for the JVM; `classes` is a folder of additional classes, such as the target of `compile_java`.
    """
    return [
        "java",
        f"-Xmx{heap}",
        *options,
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        "-cp",
        f"{folder}/*" if classes is None else f"{folder}/*:{classes}",
        main_class,
    ]


def run_tool(
    folder: Path,
    main_class: str,
    arguments: Sequence[str],
    *,
    stdin: str = "",
    timeout_seconds: float = 120.0,
    heap: str = "256m",
    options: Sequence[str] = (),
    classes: Path | None = None,
) -> str:
    """Run a tool to its end and return its standard output. Raises `InteropError` with its output if it fails.

    `options` are for the JVM; `classes` is a folder of additional classes, such as the target of `compile_java`.
    """
    command = [*java_command(folder, main_class, heap=heap, options=options, classes=classes), *arguments]
    result = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=timeout_seconds)
    if result.returncode != 0:
        raise InteropError(
            f"{main_class} failed with exit code {result.returncode}: {result.stdout[-2000:]}{result.stderr[-2000:]}"
        )
    return result.stdout


@dataclass(frozen=True, slots=True)
class Tools:
    """The command-line tools of one Apache Kafka version, connected to a cluster."""

    version: str
    folder: Path
    bootstrap: str

    def run(self, main_class: str, *arguments: str, stdin: str = "") -> str:
        """Return the output of a tool with `--bootstrap-server` and these arguments. Raises `InteropError`."""
        return self.run_plain(main_class, "--bootstrap-server", self.bootstrap, *arguments, stdin=stdin)

    def run_plain(self, main_class: str, *arguments: str, stdin: str = "") -> str:
        """Return the output of a tool with these arguments only. Raises `InteropError`."""
        return run_tool(self.folder, main_class, arguments, stdin=stdin, options=quick_start(self.folder))

    def named(self, before_4: str, since_4: str) -> str:
        """Return the name that this version uses: Kafka 4 moved classes and renamed options."""
        return before_4 if self.version.startswith("3.") else since_4


class KafkaProcess:
    """An Apache Kafka broker: a child process with its files under `directory`."""

    def __init__(
        self, folder: Path, directory: Path, *, port: int, properties: Mapping[str, str], heap: str, jvm: Sequence[str]
    ) -> None:
        """`port` must be that of a listener in `properties`; `jvm` are options of the JVM."""
        self.port: Final = port
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="utf-8")
        self._command = [*java_command(folder, "kafka.Kafka", heap=heap, options=jvm), str(path)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id. Raises `InteropError` if the broker does not run."""
        if self._process is None:
            raise InteropError("The broker does not run.")
        return self._process.pid

    def start(self) -> None:
        """Start the broker and wait until it accepts connections."""
        log = (self._directory / "broker.log").open("ab")
        with log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, cwd=self._directory)
        deadline = time.monotonic() + START_SECONDS
        while not _accepts(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = (self._directory / "broker.log").read_text(encoding="utf-8", errors="replace")[-2000:]
                self.stop()
                raise InteropError(f"Apache Kafka did not start: {tail}")
            time.sleep(0.1)

    def stop(self, *, kill: bool = False) -> None:
        """Stop the broker cleanly or kill it. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL if kill else signal.SIGTERM)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class ApacheBroker(KafkaProcess):
    """An Apache Kafka broker in ZooKeeper mode."""

    def __init__(
        self,
        folder: Path,
        directory: Path,
        *,
        broker_id: int,
        zookeeper: str,
        properties: Mapping[str, str],
        heap: str,
        options: Sequence[str] | None = None,
        port: int | None = None,
    ) -> None:
        """`properties` extend or override id, listener, directory and ensemble. `options` are for the JVM; None for
        `quick_start`. Without a port, a free one is used."""
        port = port or free_ports(1)[0]
        settings = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(directory / "data"),
            "zookeeper.connect": zookeeper,
            **properties,
        }
        jvm = quick_start(folder) if options is None else options
        super().__init__(folder, directory, port=port, properties=settings, heap=heap, jvm=jvm)


class KraftBroker(KafkaProcess):
    """An Apache Kafka broker in KRaft mode that is its own controller: a cluster of one node.

    It is for what Kafka does not have in ZooKeeper mode, such as consumer groups (KIP-848).
    """

    def __init__(self, folder: Path, directory: Path, *, properties: Mapping[str, str], heap: str) -> None:
        """`properties` extend or override the node's own ones."""
        port, controller_port = free_ports(2)
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "log.dirs": str(directory / "data"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.min.isr": "1",
            **properties,
        }
        super().__init__(folder, directory, port=port, properties=settings, heap=heap, jvm=quick_start(folder))
        self._folder = folder

    def start(self) -> None:
        """Format the log directory if it is new, start the broker and wait until it accepts connections."""
        if not (self._directory / "data" / "meta.properties").exists():
            cluster_id = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
            # An id that starts with a dash would be taken for an option.
            arguments = ["format", f"--cluster-id={cluster_id}", "-c", str(self._directory / "server.properties")]
            run_tool(self._folder, "kafka.tools.StorageTool", arguments, options=quick_start(self._folder))
        super().start()


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
