"""The files and the Java options of an ensemble member. Pure.

`zoo.cfg` is the mounted text, unchanged, followed by the list of members. The heap depends on the memory limit of the
container.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from odradek_operator.errors import PodError
from odradek_operator.objects import names
from odradek_operator.pod.identity import MemberPod
from odradek_operator.pod.pod_properties import value_of

MAIN_CLASS: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

SMALLEST_HEAP_MIB: Final = 96
DEFAULT_HEAP_MIB: Final = 512
"""Default if the container has no memory limit."""
LARGEST_HEAP_MIB: Final = 4_096
"""Kafka's metadata needs at most some hundred megabytes; a larger heap would only take longer to collect."""
PARALLEL_FROM_MIB: Final = 1_024
"""From this size on, a concurrent garbage collector is worth its threads."""

INITIALIZE: Final = "initialize"
"""A file in the data directory that lets a member start without data; ZooKeeper removes it at start."""
SNAPSHOTS: Final = "version-2"
"""Directory of snapshots and logs in the data directory."""
EPOCHS: Final = ("acceptedEpoch", "currentEpoch")
"""Files that a member without data may have left there."""

_MIB: Final = 1 << 20
_UNLIMITED: Final = 1 << 50
"""Control groups of version 1 report no limit as a number near 2**63."""

LOGGING: Final = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p %c{1}: %m%n
logger.words.name = org.apache.zookeeper.server.NIOServerCnxn
logger.words.level = warn
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""
"""log4j2 to standard output: the root file system is read-only, and logs belong to the pod. The messages about each
probe's four-letter word are suppressed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """Where the members of the ensemble connect to each other."""

    hosts: tuple[str, ...]
    """By ordinal."""
    peer_port: int = names.ZOOKEEPER_PEER_PORT
    election_port: int = names.ZOOKEEPER_ELECTION_PORT


def peers(pod: MemberPod) -> Peers:
    """The members by their DNS names, which stay when pods and addresses change."""
    service = names.zookeeper_nodes_service(pod.cluster)
    pods = (names.zookeeper_pod(pod.cluster, member) for member in range(pod.members))
    return Peers(hosts=tuple(names.host(name, service, pod.namespace) for name in pods))


def zoo_cfg(text: str, members: Peers, *, protected: bool) -> str:
    """Return the mounted properties with the list of members. With `protected`, a member without data cannot vote.

    It follows a leader that others have elected, copies their data, and votes from then on. In a new ensemble, the file
    `INITIALIZE` tells ZooKeeper that there is no data yet.
    """
    servers = "".join(
        f"server.{number}={host}:{members.peer_port}:{members.election_port}\n"
        for number, host in enumerate(members.hosts, start=1)
    )
    guard = (
        "\n# A member without data copies it from the leader before it votes\ndb.autocreate=false\n"
        if protected
        else ""
    )
    return f"{text.rstrip()}\n{guard}\n# The members of the ensemble\n{servers}"


def data_folder(text: str) -> Path:
    """Return `dataDir` of the properties. Raises `PodError` if it is missing."""
    folder = value_of(text, "dataDir")
    if not folder:
        raise PodError(f"{names.ZOOKEEPER_PROPERTIES} has no dataDir.")
    return Path(folder)


def client_port(text: str) -> int:
    """Return `clientPort` of the properties. Raises `PodError` if it is missing."""
    port = value_of(text, "clientPort") or ""
    if not port.isdecimal():
        raise PodError(f"{names.ZOOKEEPER_PROPERTIES} has clientPort={port!r}, which is not a port.")
    return int(port)


def has_data(files: Iterable[str]) -> bool:
    """Whether these files in the directory `SNAPSHOTS` contain data of the ensemble."""
    return any(name.startswith(("snapshot.", "log.")) for name in files)


def check_member(noted: str | None, pod: MemberPod) -> None:
    """Raise `PodError` if the data belongs to another member: two members with one id would lose writes."""
    if noted is not None and noted.strip() != str(pod.server_id):
        raise PodError(
            f"The data directory belongs to member {noted.strip()!r}, but this pod is member {pod.server_id}: "
            "its volume is bound to the wrong claim."
        )


def heap_mib(wanted: str | None, limit_bytes: int | None) -> int:
    """Return the Java heap: the given size, else half of the container's memory, because threads and buffers need
    memory."""
    if wanted:
        if not wanted.isdecimal() or int(wanted) < SMALLEST_HEAP_MIB:
            raise PodError(f"ZOOKEEPER_HEAP_MIB={wanted!r} must be a number of at least {SMALLEST_HEAP_MIB}.")
        return int(wanted)
    if limit_bytes is None:
        return DEFAULT_HEAP_MIB
    return max(SMALLEST_HEAP_MIB, min(limit_bytes // 2 // _MIB, LARGEST_HEAP_MIB))


def memory_limit(text: str) -> int | None:
    """Return the memory limit in a control group's file of either version; None for no limit."""
    number = text.strip()
    if not number.isdecimal() or int(number) >= _UNLIMITED:
        return None
    return int(number)


def java_options(heap: int, logging: Path) -> Sequence[str]:
    """Return the options of Java without class path and main class."""
    return (
        f"-Xms{heap}m",
        f"-Xmx{heap}m",
        "-XX:+UseG1GC" if heap >= PARALLEL_FROM_MIB else "-XX:+UseSerialGC",
        "-XX:+UsePerfData",  # Provides the number and time of collections.
        "-XX:+ExitOnOutOfMemoryError",  # Restart a member that cannot work.
        "-Djava.awt.headless=true",
        # Members that come back have new addresses; Java would cache the old address, or that there was none.
        "-Dsun.net.inetaddr.ttl=5",
        "-Dsun.net.inetaddr.negative.ttl=1",
        f"-Dlog4j2.configurationFile={logging}",
        "-Dzookeeper.jmx.log4j.disable=true",
    )
