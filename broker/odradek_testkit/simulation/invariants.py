"""Invariants that must hold after each step. They compare the brokers and the ensemble with earlier observations.

`play` calls `look` before each jump of the virtual time; it raises `Violation`. Some invariants need an explanation:

- Two brokers may *believe* that they are leader, or controller, at the same time, if one was replaced and does not know
  it yet. They must believe so in different epochs. Therefore epochs are compared over the whole run, including dead
  brokers. Followers are checked, too: in one epoch all brokers name the same leader.
- A restarted broker may have lost everything but its log, so values that never fall are only compared until the next
  restart. A partition that was removed from a broker and assigned again is another object, which starts from its
  checkpoint.
- A topic that was deleted and created again starts at epoch 0, so observations are stored by topic id. Below
  inter-broker protocol 2.8 topics have no id; then a topic whose name was used twice is not compared between machines.
- The high watermark of a new leader may be below that of the previous one, and a follower's may fall with it. Only the
  leader's never falls within an epoch, and every member of its ISR that follows in the same epoch has all records below
  it. A member in another state (dead, or not informed yet) is not checked.
- If every record has to be synced (`log.flush.interval.messages=1`), a high watermark rises only over records that the
  leader and every member of its ISR that follows in the same epoch have synced. The simulated disks show it.
- With an old protocol a leader writes its ISR to ZooKeeper itself, with the controller epoch that it knows. Therefore
  the epoch of the current controller is required only in states that begin a leader epoch.

Checking a machine that has not run since the last time costs nothing (`Host.turns`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, NoReturn

from odradek.app.broker import Broker, BrokerState
from odradek.base.types import NO_BROKER, NO_EPOCH, TopicPartition
from odradek.log.partition_log import PartitionLog
from odradek.replication.partition_table import HostedPartition
from odradek.zk import layout
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.simulation.errors import Violation
from odradek_testkit.simulation.world import Machine, World

ONE_LEADER: Final = "one-leader"
LEADER_EPOCH: Final = "leader-epoch-falls"
ONE_CONTROLLER: Final = "one-controller"
CONTROLLER_EPOCH: Final = "controller-epoch-falls"
FENCED_CONTROLLER: Final = "fenced-controller"
"""A replaced controller has begun a leader epoch."""
MARKS: Final = "marks"
"""Not log start <= last stable offset <= high watermark <= log end."""
HIGH_WATERMARK: Final = "high-watermark-falls"
LAST_STABLE: Final = "last-stable-offset-falls"
REPLICATED: Final = "replicated"
"""A member of the ISR lacks records below the leader's high watermark."""
DURABLE: Final = "durable"
"""A high watermark rose over records that a member of the ISR has not synced although it has to."""
IN_SYNC_SET: Final = "in-sync-set"
"""The ISR is empty, or has members that are not replicas."""
PARTITION_EPOCH: Final = "partition-epoch-falls"

_LOOKED_INTO: Final = frozenset({BrokerState.RUNNING, BrokerState.PENDING_CONTROLLED_SHUTDOWN})
_STATE: Final = "/state"


class _Seen(NamedTuple):
    """One partition of one broker, as of the last check."""

    partition: HostedPartition
    leader_epoch: int
    partition_epoch: int
    leader_id: int
    is_leader: bool
    in_sync: object
    log_start: int
    high_watermark: int
    log_end: int


@dataclass(slots=True)
class _Watched:
    """A machine between two starts of its broker."""

    machine: Machine
    broker: Broker | None = None
    turns: int = -1
    controller_epoch: int = NO_EPOCH
    """The highest controller epoch whose requests it has accepted."""
    seen: dict[TopicPartition, _Seen] = field(default_factory=dict)
    stable: dict[TopicPartition, int] = field(default_factory=dict)
    """Last stable offsets, as of the last change of `seen`."""

    def renew(self, broker: Broker) -> None:
        """Forget the observations of the broker, because it was restarted."""
        self.broker, self.controller_epoch = broker, NO_EPOCH
        self.seen.clear()
        self.stable.clear()

    def hosted(self, topic_partition: TopicPartition) -> HostedPartition | None:
        """Return the current state of a partition, if it was seen since the start and the broker serves."""
        seen, broker = self.seen.get(topic_partition), self.broker
        if seen is None or broker is None or broker is not self.machine.broker or broker.state not in _LOOKED_INTO:
            return None
        return seen.partition


class Invariants:
    """Checks the invariants, and stores its observations because many invariants are about values that never fall."""

    def __init__(self, world: World) -> None:
        """Start without observations."""
        self._tree: Final = world.ensemble.tree
        self._syncs_everything: Final = world.syncs_everything
        self._watched: Final = {machine.broker_id: _Watched(machine) for machine in world.machines}
        self._leaders: Final[dict[tuple[object, TopicPartition, int], int]] = {}
        """Leaders by topic id, partition and leader epoch."""
        self._controllers: Final[dict[int, int]] = {}
        """Controllers by epoch."""
        self._births: Final[dict[str, set[int]]] = {}
        """Zxids of the transactions that created topics, by name."""
        self._zxid = -1
        self._controller_epoch = NO_EPOCH
        self._states: Final[dict[str, tuple[Any, layout.PartitionState]]] = {}
        """Znodes of partition states and their content, by path."""

    def look(self) -> None:
        """Check everything and compare it with earlier observations. Raises `Violation`."""
        if self._tree.last_zxid != self._zxid:
            self._zxid = self._tree.last_zxid
            self._look_into_tree()
        for watched in self._watched.values():
            host, broker = watched.machine.host, watched.machine.broker
            if host is None or broker is None:
                continue
            if broker is not watched.broker:
                watched.renew(broker)
            elif host.turns == watched.turns:
                continue
            watched.turns = host.turns
            if broker.state in _LOOKED_INTO:
                self._look_into(watched, broker)

    # ZooKeeper

    def _look_into_tree(self) -> None:
        nodes = self._tree.nodes
        epoch_node = nodes.get(layout.CONTROLLER_EPOCH)
        if epoch_node is not None:
            epoch = layout.decode_controller_epoch(epoch_node.data)
            if epoch < self._controller_epoch:
                _fail(CONTROLLER_EPOCH, f"{layout.CONTROLLER_EPOCH} was {self._controller_epoch}, is {epoch}")
            self._controller_epoch = epoch
        prefix = f"{layout.TOPICS}/"
        for path, node in nodes.items():
            if not path.startswith(prefix):
                continue
            if path.endswith(_STATE):
                before = self._states.get(path)
                if before is None or before[0] is not node:
                    self._state_changed(path, node, before)
            elif path.count("/") == 3:
                self._births.setdefault(path.removeprefix(prefix), set()).add(node.czxid)

    def _state_changed(self, path: str, node: Any, before: tuple[Any, layout.PartitionState] | None) -> None:
        topic, _, number, _ = path.removeprefix(f"{layout.TOPICS}/").rsplit("/", 3)
        partition = TopicPartition(topic, int(number))
        state = layout.PartitionState.decode(partition, node.data)
        known = None if before is None or before[0].czxid != node.czxid else before[1]
        self._states[path] = (node, state)
        if known is None or state.leader_epoch > known.leader_epoch:
            self._check_author(partition, state, node.mzxid)
        elif state.leader_epoch < known.leader_epoch:
            _fail(LEADER_EPOCH, f"{partition} was in epoch {known.leader_epoch}, is in {state.leader_epoch}")
        elif state.leader != known.leader:
            _fail(ONE_LEADER, f"{partition} has leaders {known.leader}, {state.leader} in epoch {state.leader_epoch}")
        self._check_members(partition, state)

    def _check_author(self, partition: TopicPartition, state: layout.PartitionState, zxid: int) -> None:
        epoch_node = self._tree.nodes.get(layout.CONTROLLER_EPOCH)
        if epoch_node is not None and zxid > epoch_node.mzxid and state.controller_epoch != self._controller_epoch:
            what = (
                f"a controller of epoch {state.controller_epoch} began leader epoch {state.leader_epoch} of {partition}"
            )
            _fail(FENCED_CONTROLLER, f"{what} in controller epoch {self._controller_epoch}")

    def _check_members(self, partition: TopicPartition, state: layout.PartitionState) -> None:
        if not state.isr:
            _fail(IN_SYNC_SET, f"that of {partition} is empty")
        node = self._tree.nodes.get(layout.topic_path(partition.topic))
        if node is None:
            return
        assignment = layout.TopicAssignment.decode(partition.topic, node.data).partitions.get(partition.partition)
        if assignment is not None and not set(state.isr) <= set(assignment.replicas):
            _fail(IN_SYNC_SET, f"{partition} has the ISR {list(state.isr)} of the replicas {list(assignment.replicas)}")

    # Brokers

    def _look_into(self, watched: _Watched, broker: Broker) -> None:
        name = watched.machine.name
        epoch = broker.controller.epoch
        if epoch != NO_EPOCH:
            first = self._controllers.setdefault(epoch, watched.machine.broker_id)
            if first != watched.machine.broker_id:
                _fail(ONE_CONTROLLER, f"{name} and broker-{first} were controllers in epoch {epoch}")
        obeyed = broker.replicas.roles.controller_epoch
        if obeyed < watched.controller_epoch:
            _fail(CONTROLLER_EPOCH, f"{name} accepted controller epoch {obeyed} after {watched.controller_epoch}")
        watched.controller_epoch = obeyed
        seen = watched.seen
        for topic_partition, partition in broker.replicas.table.online.items():
            log = partition.log
            # A plain tuple, because most partitions have not changed, and a `_Seen` takes longer to create.
            values = (
                partition,
                partition.leader_epoch,
                partition.partition_epoch,
                partition.leader_id,
                partition.is_leader,
                partition.in_sync,
                log.log_start_offset,
                log.high_watermark,
                log.log_end_offset,
            )
            before = seen.get(topic_partition)
            if values != before:
                now = seen[topic_partition] = _Seen(*values)
                self._changed(watched, now, before)

    def _changed(self, watched: _Watched, now: _Seen, before: _Seen | None) -> None:
        where = f"{now.partition.topic_partition} on {watched.machine.name}"
        self._check_marks(where, now)
        if before is not None and before.partition is now.partition:
            _check_falls(where, now, before)
            if self._syncs_everything and _rose(now, before):
                self._check_durable(now.partition)
        _check_stable(where, watched.stable, now, before)
        incarnation = self._incarnation(now.partition)
        if incarnation is None:
            return
        if now.leader_id != NO_BROKER:
            self._check_leader(where, now, incarnation)
        if now.is_leader:
            self._check_in_sync_set(where, now)
            self._check_replicated(now.partition)
            return
        leader = self._watched.get(now.leader_id)
        led = None if leader is None else leader.hosted(now.partition.topic_partition)
        if led is not None and led.is_leader:
            self._check_replicated(led)

    def _incarnation(self, partition: HostedPartition) -> object | None:
        """Return what distinguishes a topic from an earlier one with its name; None if nothing does."""
        if partition.log.topic_id is not None:
            return partition.log.topic_id
        return "only" if len(self._births.get(partition.topic_partition.topic, ())) <= 1 else None

    @staticmethod
    def _check_marks(where: str, now: _Seen) -> None:
        stable = now.partition.last_stable_offset
        if not now.log_start <= stable <= now.high_watermark <= now.log_end:
            what = f"log start {now.log_start}, last stable {stable}, high watermark {now.high_watermark}"
            _fail(MARKS, f"{where}: {what}, log end {now.log_end}")

    def _check_leader(self, where: str, now: _Seen, incarnation: object) -> None:
        key = (incarnation, now.partition.topic_partition, now.leader_epoch)
        known = self._leaders.setdefault(key, now.leader_id)
        if known != now.leader_id:
            _fail(ONE_LEADER, f"{where}: leader {now.leader_id} in epoch {now.leader_epoch}, elsewhere {known}")

    @staticmethod
    def _check_in_sync_set(where: str, now: _Seen) -> None:
        committed, replicas = now.partition.in_sync.committed, now.partition.replicas
        if not committed or not set(committed) <= set(replicas):
            _fail(IN_SYNC_SET, f"{where}: {list(committed)}, of {list(replicas)}")

    def _check_replicated(self, led: HostedPartition) -> None:
        """Check that ISR members that follow in this epoch have all records below the leader's high watermark."""
        for member in led.in_sync.maximal:
            watched = self._watched.get(member)
            other = None if watched is None else watched.hosted(led.topic_partition)
            if other is None or other.leader_id != led.local_id or other.leader_epoch != led.leader_epoch:
                continue
            end = other.log.log_end_offset
            if other is not led and end < led.high_watermark:
                what = f"{led.topic_partition}: broker-{member} is in sync in epoch {led.leader_epoch}, ends at {end}"
                _fail(REPLICATED, f"{what}, below the high watermark {led.high_watermark}")

    def _check_durable(self, led: HostedPartition) -> None:
        """Check that the leader and its ISR have synced all records below the high watermark."""
        for member in led.in_sync.maximal:
            watched = self._watched.get(member)
            other = None if watched is None else watched.hosted(led.topic_partition)
            if other is None or other.leader_id != led.local_id or other.leader_epoch != led.leader_epoch:
                continue
            assert watched is not None
            path = _unsynced(watched.machine.disk, other.log, led.high_watermark)
            if path is not None:
                what = f"{led.topic_partition}: the high watermark is {led.high_watermark} in epoch {led.leader_epoch}"
                _fail(DURABLE, f"{what}, but broker-{member} has not synced {path}")


def _unsynced(disk: MemoryFiles, log: PartitionLog, offset: int) -> str | None:
    """Return the path of the first segment file with unsynced records below `offset`; None if all are durable."""
    segments = log.segments
    for place, segment in enumerate(segments):
        if segment.base_offset >= offset:
            return None
        position = disk.unsynced_from(segment.path())
        if position is None:
            continue
        end = segments[place + 1].base_offset if place + 1 < len(segments) else log.log_end_offset
        found = segment.locate(offset) if offset < end else None
        if position < (segment.size if found is None else found.position):
            return segment.path()
    return None


def _rose(now: _Seen, before: _Seen) -> bool:
    """Whether a leader's high watermark has risen within its epoch."""
    same_reign = now.is_leader and before.is_leader and now.leader_epoch == before.leader_epoch
    return same_reign and now.high_watermark > before.high_watermark


def _check_falls(where: str, now: _Seen, before: _Seen) -> None:
    """Check the values that never fall while a broker hosts a partition."""
    if now.leader_epoch < before.leader_epoch:
        _fail(LEADER_EPOCH, f"{where}: was {before.leader_epoch}, is {now.leader_epoch}")
    if now.partition_epoch < before.partition_epoch:
        _fail(PARTITION_EPOCH, f"{where}: was {before.partition_epoch}, is {now.partition_epoch}")
    same_reign = now.is_leader and before.is_leader and now.leader_epoch == before.leader_epoch
    if same_reign and now.high_watermark < before.high_watermark:
        what = f"was {before.high_watermark}, is {now.high_watermark} in leader epoch {now.leader_epoch}"
        _fail(HIGH_WATERMARK, f"{where}: {what}")


def _check_stable(where: str, stable: dict[TopicPartition, int], now: _Seen, before: _Seen | None) -> None:
    """Check and remember the last stable offset, which never falls while a broker leads in one epoch."""
    partition = now.partition.topic_partition
    earlier = stable.get(partition)
    current = stable[partition] = now.partition.last_stable_offset
    if before is None or earlier is None or before.partition is not now.partition:
        return
    same_reign = now.is_leader and before.is_leader and now.leader_epoch == before.leader_epoch
    if same_reign and current < earlier:
        _fail(LAST_STABLE, f"{where}: was {earlier}, is {current} in leader epoch {now.leader_epoch}")


def _fail(invariant: str, what: str) -> NoReturn:
    raise Violation(invariant, what)
