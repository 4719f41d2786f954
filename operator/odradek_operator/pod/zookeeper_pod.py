"""`odradek-pod zookeeper`: runs a member of an ensemble as a Java process, and serves its metrics.

It exits with the code of the Java process, or with 0 after a requested stop. It forwards SIGTERM and SIGINT to Java.
Java ends with this process, even if this process is killed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from odradek.metrics.http import HttpServer
from odradek_operator.ensemble import parent_guard as guard
from odradek_operator.ensemble.java import java_command, zookeeper_class_path
from odradek_operator.ensemble.member_metrics import Member
from odradek_operator.errors import PodError
from odradek_operator.objects import names
from odradek_operator.objects.properties_file import certificates_digest
from odradek_operator.pod import member_files as ensemble
from odradek_operator.pod.identity import MemberPod, member_pod

logger = logging.getLogger(__name__)

MEMORY_LIMITS: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Files with the memory limit of the container's control group: version 2, version 1."""


CERTIFICATES_SECONDS: Final = 120
"""How long a start waits for the certificates of the pod. The kubelet reads Secrets again about once a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """The options of the command line; the defaults are for pods."""

    properties: Path
    folder: Path
    """Directory for the files that are generated at each start."""
    metrics_host: str
    metrics_port: int
    certificates: Path = Path(names.CERTIFICATES_FOLDER)
    """Directory of the mounted certificates."""
    peers: ensemble.Peers | None = None
    """Addresses instead of the DNS names that follow from the pod's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A member whose files are written."""

    pod: MemberPod
    command: tuple[str, ...]
    client_port: int


def prepare(options: MemberOptions, environment: Mapping[str, str]) -> Prepared:
    """Write the files and return the command. Raises `PodError` or `EmbeddedError`."""
    pod = member_pod(environment)
    try:
        text = options.properties.read_text(encoding="utf-8")
    except OSError as error:
        raise PodError(f"The properties file {options.properties} cannot be read: {error.strerror}.") from error
    heap = ensemble.heap_mib(environment.get("ZOOKEEPER_HEAP_MIB"), memory_limit())
    config, log4j = options.folder / "zoo.cfg", options.folder / "log4j2.properties"
    data = ensemble.data_folder(text)
    try:
        data.mkdir(parents=True, exist_ok=True)
        note = data / "myid"
        ensemble.check_member(note.read_text(encoding="ascii") if note.exists() else None, pod)
        note.write_text(f"{pod.server_id}\n", encoding="ascii")
        protected = _guard_against_empty_members(data, options.properties.with_name(names.ENSEMBLE_STATE))
        peers = options.peers or ensemble.peers(pod)
        config.write_text(ensemble.zoo_cfg(text, peers, protected=protected), encoding="utf-8")
        log4j.write_text(ensemble.LOGGING, encoding="ascii")
    except OSError as error:
        raise PodError(f"{error.filename} cannot be used: {error.strerror}.") from error
    jars = environment.get("ZOOKEEPER_JARS")
    command = (
        java_command(),
        *ensemble.java_options(heap, log4j),
        "-cp",
        zookeeper_class_path(Path(jars) if jars else None),
        ensemble.MAIN_CLASS,
        str(config),
    )
    return Prepared(pod=pod, command=command, client_port=ensemble.client_port(text))


def _guard_against_empty_members(data: Path, state: Path) -> bool:
    """Allow this member to start without data only in a new ensemble. Returns whether empty members must not vote.

    The operator writes `state`. An operator of an earlier version does not, and then members are not restricted.
    """
    if not state.exists():
        return False
    snapshots, initialize = data / ensemble.SNAPSHOTS, data / ensemble.INITIALIZE
    files = [path.name for path in snapshots.iterdir()] if snapshots.is_dir() else []
    if state.read_text(encoding="ascii").strip() == names.FORMING and not ensemble.has_data(files):
        for name in ensemble.EPOCHS:
            # An attempt to join an ensemble left these files. ZooKeeper would not start with them.
            (snapshots / name).unlink(missing_ok=True)
        initialize.touch()
        logger.info("the ensemble is new: this member starts without data")
    else:
        initialize.unlink(missing_ok=True)
        if not ensemble.has_data(files):
            logger.info("this member has no data: it copies the data of the leader before it votes")
    return True


def memory_limit() -> int | None:
    """Return the memory limit of the container in bytes; None for no limit."""
    for path in MEMORY_LIMITS:
        try:
            return ensemble.memory_limit(path.read_text(encoding="ascii"))
        except OSError:
            continue  # The file of the other version.
    return None


async def run(options: MemberOptions, environment: Mapping[str, str]) -> int:
    """Run the member until it ends and return the exit code."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await wait_for_certificates(options.certificates, environment.get(names.CERTIFICATES_DIGEST))
    prepared = await asyncio.to_thread(prepare, options, environment)
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(Path(guard.__file__)), str(os.getpid()), *prepared.command, stdin=asyncio.subprocess.DEVNULL
    )
    member = Member(
        process_id=process.pid,
        client_port=prepared.client_port,
        server_id=prepared.pod.server_id,
        members=prepared.pod.members,
    )
    server = HttpServer(
        host=options.metrics_host, port=options.metrics_port, routes=member.routes(), setting="--metrics-port"
    )
    try:
        server.start()
        logger.info("member %d of %d runs as process %d", member.server_id, member.members, process.pid)
        return await _until_end(process, stop)
    finally:
        await server.close()
        if process.returncode is None:
            process.kill()
            await process.wait()


async def wait_for_certificates(
    folder: Path, wanted: str | None, *, pause: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> None:
    """Wait until the mounted certificates are those for which the pod was made; `pause` waits for some seconds.

    The kubelet may know an older content of their Secret when it starts the pod. If only this container starts again,
    the content may be newer, which is not harmful: the other members and the clients trust it.
    """
    if not wanted:
        return
    for _ in range(CERTIFICATES_SECONDS):
        if await asyncio.to_thread(_digest_in, folder) == wanted:
            return
        await pause(1)
    logger.warning("ZooKeeper uses the certificates in %s, but the pod was made for others", folder)


def _digest_in(folder: Path) -> str:
    """Return the digest of the mounted certificates; empty if they cannot be read."""
    try:
        return certificates_digest(
            {name: (folder / name).read_bytes() for name in (names.ZOOKEEPER_KEYSTORE, names.CLUSTER_CA_FILE)}
        )
    except OSError as error:
        logger.info("%s cannot be read: %s", error.filename, error.strerror)
        return ""


async def _until_end(process: asyncio.subprocess.Process, stop: asyncio.Event) -> int:
    ended, asked = asyncio.ensure_future(process.wait()), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((ended, asked), return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            logger.info("stop requested: stopping ZooKeeper")
            process.terminate()
            await ended
            return 0
    finally:
        asked.cancel()
    code = ended.result()
    logger.error("ZooKeeper ended with exit code %d: see its log above", code)
    return code if code > 0 else 1
