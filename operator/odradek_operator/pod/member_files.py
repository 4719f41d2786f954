"""The files and the command of one ensemble member. Pure.

Enters: the mounted properties, the pod, the memory that the container may use. Leaves: `zoo.cfg`, `myid`, the options
of Java. The mounted text stays as it is; the list of members follows it.
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
"""Where the container has no limit."""
LARGEST_HEAP_MIB: Final = 4_096
"""All of Kafka's metadata is some hundred megabytes; more heap would only be swept."""
PARALLEL_FROM_MIB: Final = 1_024
"""From here on the heap is worth a collector with threads of its own."""

INITIALIZE: Final = "initialize"
"""File in a member's data folder by which it may begin without data; ZooKeeper removes it at its start."""
SNAPSHOTS: Final = "version-2"
"""Folder of snapshots and logs in a member's data folder."""
EPOCHS: Final = ("acceptedEpoch", "currentEpoch")
"""What a member that never had data may have left there."""

_MIB: Final = 1 << 20
_UNLIMITED: Final = 1 << 50
"""Version 1 of control groups tells no limit as a number near 2**63."""

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
"""log4j2 to standard output: the root file system cannot be written to, and logs belong to the pod. What it
says of each probe's four-letter word is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """How members find one another."""

    hosts: tuple[str, ...]
    """By ordinal."""
    peer_port: int = names.ZOOKEEPER_PEER_PORT
    election_port: int = names.ZOOKEEPER_ELECTION_PORT


def peers(pod: MemberPod) -> Peers:
    """The members by their names in DNS, which stay when pods and addresses change."""
    service = names.zookeeper_nodes_service(pod.cluster)
    pods = (names.zookeeper_pod(pod.cluster, member) for member in range(pod.members))
    return Peers(hosts=tuple(names.host(name, service, pod.namespace) for name in pods))


def zoo_cfg(text: str, members: Peers, *, protected: bool) -> str:
    """The mounted properties and the list of members. With `protected` a member without data does not vote.

    It follows a leader that others have elected, and has their data and a vote from then on. A new ensemble begins with
    the file `INITIALIZE`, by which ZooKeeper takes no data for all there is.
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
    """`dataDir` of the properties. Raises `PodError` when they have none."""
    folder = value_of(text, "dataDir")
    if not folder:
        raise PodError(f"{names.ZOOKEEPER_PROPERTIES} has no dataDir.")
    return Path(folder)


def client_port(text: str) -> int:
    """`clientPort` of the properties. Raises `PodError` when they have none."""
    port = value_of(text, "clientPort") or ""
    if not port.isdecimal():
        raise PodError(f"{names.ZOOKEEPER_PROPERTIES} has clientPort={port!r}, which is no port.")
    return int(port)


def has_data(files: Iterable[str]) -> bool:
    """Whether these files of the folder `SNAPSHOTS` hold anything of the ensemble's."""
    return any(name.startswith(("snapshot.", "log.")) for name in files)


def check_member(noted: str | None, pod: MemberPod) -> None:
    """`PodError` when the data folder is another member's: two members with one id, or one with two, lose writes."""
    if noted is not None and noted.strip() != str(pod.server_id):
        raise PodError(
            f"The data folder belongs to member {noted.strip()!r}, but this pod is member {pod.server_id}: "
            "its volume was bound to the wrong claim."
        )


def heap_mib(wanted: str | None, limit_bytes: int | None) -> int:
    """Java's heap: as wanted, else half of what the container may use; the rest is for threads, buffers and caches."""
    if wanted:
        if not wanted.isdecimal() or int(wanted) < SMALLEST_HEAP_MIB:
            raise PodError(f"ZOOKEEPER_HEAP_MIB={wanted!r} is no number of at least {SMALLEST_HEAP_MIB}.")
        return int(wanted)
    if limit_bytes is None:
        return DEFAULT_HEAP_MIB
    return max(SMALLEST_HEAP_MIB, min(limit_bytes // 2 // _MIB, LARGEST_HEAP_MIB))


def memory_limit(text: str) -> int | None:
    """The bytes that a control group's file allows, either version; None for no limit."""
    number = text.strip()
    if not number.isdecimal() or int(number) >= _UNLIMITED:
        return None
    return int(number)


def java_options(heap: int, logging: Path) -> Sequence[str]:
    """Options of Java, without class path and main class."""
    return (
        f"-Xms{heap}m",
        f"-Xmx{heap}m",
        "-XX:+UseG1GC" if heap >= PARALLEL_FROM_MIB else "-XX:+UseSerialGC",
        "-XX:+UsePerfData",  # The number and time of collections are read from there.
        "-XX:+ExitOnOutOfMemoryError",  # A member that cannot work shall be started anew.
        "-Djava.awt.headless=true",
        # Members that come back have new addresses; Java would remember the old one, or that there was none.
        "-Dsun.net.inetaddr.ttl=5",
        "-Dsun.net.inetaddr.negative.ttl=1",
        f"-Dlog4j2.configurationFile={logging}",
        "-Dzookeeper.jmx.log4j.disable=true",
    )
