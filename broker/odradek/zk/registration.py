"""Registers a broker in ZooKeeper, allocates ids, and reads configuration change notifications.

`app/broker` uses it at start and after each expired session. Invariants: a broker id belongs to one session; the broker
epoch (the czxid of the registration) increases with each registration; a block of producer ids is allocated only once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

from odradek.base.errors import OdradekError
from odradek.base.ports import Clock
from odradek.base.types import BrokerEpoch
from odradek.zk import layout
from odradek.zk.layout import BrokerRegistration, ClusterId, ConfigChangeNotification, LayoutError, ProducerIdBlock
from odradek.zk.port import (
    BadVersion,
    ConnectionLost,
    Create,
    NodeExists,
    NoNode,
    SessionExpired,
    SetData,
    Watch,
    ZkClient,
    ZkError,
    ZnodeStat,
)

log = logging.getLogger(__name__)

PRODUCER_ID_BLOCK_SIZE: Final = 1000
LAST_PRODUCER_ID: Final = 2**63 - 1
CHANGE_RETENTION_MS: Final = 15 * 60 * 1000
"""Milliseconds for which a notification of a changed configuration is kept."""
ANNOUNCE_RETRY_MS: Final = 1000


class BrokerIdInUse(OdradekError):  # noqa: N818 - says what is the case
    """Another broker with the same broker id is running."""


async def prepare(zk: ZkClient) -> None:
    """Create the persistent znodes that every broker requires."""
    for path in layout.PERSISTENT_PATHS:
        await zk.ensure_path(path)


async def cluster_id(zk: ZkClient, clock: Clock) -> str:
    """Return the cluster id. The first broker of the cluster generates it."""
    found = await zk.get_or_none(layout.CLUSTER_ID)
    if found is not None:
        return ClusterId.decode(found[0]).cluster_id
    proposal = _new_cluster_id(clock)
    try:
        await zk.create(layout.CLUSTER_ID, ClusterId(cluster_id=proposal).encode(), make_parents=True)
    except NodeExists:
        return ClusterId.decode((await zk.get(layout.CLUSTER_ID))[0]).cluster_id
    return proposal


def _new_cluster_id(clock: Clock) -> str:
    """Return a random UUID of version 4. It does not begin with a dash, because command lines would parse it as an
    option."""
    while True:
        text = layout.encode_uuid(UUID(bytes=clock.token_bytes(16), version=4))
        if not text.startswith("-"):
            return text


async def registered_brokers(zk: ZkClient) -> dict[int, BrokerRegistration]:
    """Return the registrations of the live brokers, by broker id. Invalid ones are omitted and logged."""
    names = await zk.children_or_none(layout.BROKER_IDS) or []
    ids = {layout.broker_path(int(name)): int(name) for name in names if name.isdecimal()}
    found = {}
    for path, znode in (await zk.get_many(ids)).items():
        if znode is None:
            continue
        try:
            found[ids[path]] = BrokerRegistration.decode(ids[path], znode[0])
        except LayoutError as error:
            log.warning("a broker is left out, because its registration is invalid: %s", error)
    return found


async def machines(zk: ZkClient) -> dict[int, str]:
    """Return the machines of the registered brokers, by broker id.

    Brokers without a machine, such as Java brokers, and invalid registrations are omitted. The controller does not
    announce machines to brokers, because UpdateMetadata has no field for them.
    """
    found = await registered_brokers(zk)
    return {broker: each.machine for broker, each in found.items() if each.machine is not None}


class BrokerRegistrar:
    """Registers one broker. Call `register` at start and after each expired session."""

    def __init__(self, zk: ZkClient, clock: Clock, *, wait_ms: int) -> None:
        """`wait_ms` is the maximum wait while another session holds the broker id."""
        self._zk = zk
        self._clock = clock
        self._wait_ms = wait_ms
        self._sessions: set[int] = set()

    async def register(
        self, registration: BrokerRegistration, *, first: Callable[[], Awaitable[object]] | None = None
    ) -> BrokerEpoch:
        """Create the ephemeral registration and return the broker epoch. `first` is awaited when the id is free.

        The znode of an earlier session of this process is replaced immediately, because that session has ended
        (ZooKeeper sometimes keeps such znodes, ZOOKEEPER-2985). For any other znode, a process that starts waits up to
        `wait_ms`: usually the znode belongs to its previous run, whose session has not timed out yet. The address does
        not identify the previous run, because a recreated pod may have another one. Raises `BrokerIdInUse` if the id is
        not free by then. In a process that was registered before, raises it as soon as a broker with another address
        has the id.
        """
        deadline = self._clock.monotonic_ms() + self._wait_ms
        holder = 0
        while True:
            if first is not None and await self._zk.exists(registration.path) is None:
                await first()
                first = None
            session = self._zk.session_id
            stat = None if first is not None else await self._create(registration)
            if stat is not None:
                self._sessions.add(session)
                log.info("registered broker %d with epoch %d", registration.broker_id, stat.czxid)
                return BrokerEpoch(stat.czxid)
            found = await self._zk.get_or_none(registration.path)
            if found is None:
                continue
            data, stat = found
            if stat.ephemeral_owner == self._zk.session_id:
                # This client created the znode, but the response was lost with the connection.
                self._sessions.add(stat.ephemeral_owner)
                return BrokerEpoch(stat.czxid)
            if stat.ephemeral_owner in self._sessions:
                await self._remove(registration.path, stat)
                continue
            is_replaced = bool(self._sessions) and not _same_address(registration, data)
            left_ms = deadline - self._clock.monotonic_ms()
            if is_replaced or left_ms <= 0:
                raise BrokerIdInUse(
                    f"another broker with broker.id {registration.broker_id} is running: {_description(data)} "
                    f"(session {_session(stat.ephemeral_owner)}). Give this broker another id, or stop the other one"
                )
            if holder != stat.ephemeral_owner:
                holder = stat.ephemeral_owner
                log.warning(
                    "broker.id %d is in use by session %s: %s. The session of a previous run of this broker expires: "
                    "waiting for at most %d ms (initial.broker.registration.timeout.ms)",
                    registration.broker_id,
                    _session(holder),
                    _description(data),
                    left_ms,
                )
            await self._until_changed(registration.path, deadline)

    async def update(self, registration: BrokerRegistration) -> None:
        """Change the content of the registration, such as its endpoints. The broker epoch does not change."""
        await self._zk.set(registration.path, registration.encode())

    async def _create(self, registration: BrokerRegistration) -> ZnodeStat | None:
        path = registration.path
        try:
            results = await self._zk.multi(
                [Create(path, None, ephemeral=True), SetData(path, registration.encode(), 0)]
            )
        except NodeExists:
            return None
        stat = results[1]
        assert isinstance(stat, ZnodeStat), "the result of a set is a stat"
        return stat

    async def _remove(self, path: str, stat: ZnodeStat) -> None:
        try:
            await self._zk.delete(path, stat.version)
        except (NoNode, BadVersion):
            log.info("%s changed before it was replaced; it is read again", path)

    async def _until_changed(self, path: str, deadline_ms: float) -> None:
        changed = asyncio.Event()
        watch = self._zk.watch_data(path, changed.set)
        timer = self._clock.call_later(max(0.0, deadline_ms - self._clock.monotonic_ms()), changed.set)
        try:
            if await self._zk.exists(path) is not None:
                await changed.wait()
        finally:
            watch.cancel()
            timer.cancel()


def _same_address(registration: BrokerRegistration, data: bytes) -> bool:
    try:
        found = BrokerRegistration.decode(registration.broker_id, data)
    except LayoutError:
        return False
    return found.endpoints == registration.endpoints


def _session(session_id: int) -> str:
    return f"0x{session_id & 0xFFFFFFFFFFFFFFFF:x}"


def _description(data: bytes) -> str:
    return data.decode(errors="replace")[:500]


class ConfigChangeListener:
    """Reports each changed configuration once, in order, and deletes old notifications.

    `on_change` gets the path of the entity below `/config`, such as `topics/departures`. Changes before `start` are not
    reported, so the caller must read all configurations after `start`.
    """

    def __init__(self, zk: ZkClient, clock: Clock, on_change: Callable[[str], None]) -> None:
        """Create a listener. It watches nothing before `start`."""
        self._zk = zk
        self._clock = clock
        self._on_change = on_change
        self._last = -1
        self._watch: Watch | None = None
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Watch for new notifications. Existing ones are ignored."""
        self._watch = self._zk.watch_children(layout.CONFIG_CHANGES, self._wanted.set)
        names = await self._zk.children_or_none(layout.CONFIG_CHANGES) or []
        self._last = max((_change_number(name) for name in names), default=-1)
        self._task = asyncio.create_task(self._follow(), name="config-changes")

    async def close(self) -> None:
        """Stop watching. Idempotent."""
        if self._watch is not None:
            self._watch.cancel()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._read_new()
            except ZkError as error:
                # The connection was lost. The watch fires after the reconnection, and then the notifications are read.
                log.warning(
                    "configuration changes cannot be read; the broker tries again after it reconnects: %s",
                    error,
                )

    async def _read_new(self) -> None:
        names = await self._zk.children_or_none(layout.CONFIG_CHANGES) or []
        numbered = sorted((_change_number(name), f"{layout.CONFIG_CHANGES}/{name}") for name in names)
        fresh = [(number, path) for number, path in numbered if number > self._last]
        found = await self._zk.get_many(path for _, path in fresh)
        for number, path in fresh:
            content = found[path]
            if content is not None:
                self._tell(path, content[0])
            self._last = number
        await self._purge([path for _, path in numbered])

    def _tell(self, path: str, data: bytes) -> None:
        try:
            change = ConfigChangeNotification.decode(path, data)
        except LayoutError as error:
            log.error("an invalid notification of a configuration change is ignored: %s", error)
            return
        self._on_change(change.entity_path)

    async def _purge(self, paths: list[str]) -> None:
        """Delete notifications that are older than `CHANGE_RETENTION_MS`. Other brokers do the same."""
        found = await self._zk.get_many(paths)
        horizon = self._clock.wall_ms() - CHANGE_RETENTION_MS
        for path, content in found.items():
            if content is not None and content[1].ctime_ms < horizon:
                try:
                    await self._zk.delete(path)
                except NoNode:
                    continue


def _change_number(name: str) -> int:
    try:
        return layout.sequence_number(name, layout.CONFIG_CHANGE_PREFIX)
    except LayoutError:
        return -1


async def announce_config_change(zk: ZkClient, entity_path: str) -> None:
    """Notify all brokers that `/config/<entity_path>` changed."""
    path = f"{layout.CONFIG_CHANGES}/{layout.CONFIG_CHANGE_PREFIX}"
    await zk.create(path, ConfigChangeNotification(entity_path=entity_path).encode(), sequential=True)


async def announce_directory_failure(zk: ZkClient, clock: Clock, broker_id: int) -> None:
    """Notify the controller that log directories of this broker failed (KIP-112). Retry while ZooKeeper does not
    answer."""
    path = f"{layout.LOG_DIR_EVENTS}/{layout.LOG_DIR_EVENT_PREFIX}"
    while True:
        try:
            await zk.create(path, layout.LogDirEvent(broker_id=broker_id).encode(), sequential=True)
        except (ConnectionLost, SessionExpired) as error:
            log.warning(
                "the controller cannot be notified of the failure of a log directory yet; the broker tries again: %s",
                error,
            )
            await clock.sleep_ms(ANNOUNCE_RETRY_MS)
        else:
            return


async def next_producer_ids(zk: ZkClient, broker_id: int) -> ProducerIdBlock:
    """Allocate the next block of producer ids for this broker, with a conditional set."""
    while True:
        found = await zk.get_or_none(layout.PRODUCER_ID_BLOCK)
        if found is None:
            await zk.ensure_path(layout.PRODUCER_ID_BLOCK)
            continue
        data, stat = found
        first = ProducerIdBlock.decode(data).last_id + 1 if data else 0
        if first > LAST_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
            raise LayoutError(layout.PRODUCER_ID_BLOCK, "all producer ids are allocated")
        block = ProducerIdBlock(broker_id=broker_id, first_id=first, last_id=first + PRODUCER_ID_BLOCK_SIZE - 1)
        try:
            await zk.set(layout.PRODUCER_ID_BLOCK, block.encode(), stat.version)
        except BadVersion:
            continue
        return block
