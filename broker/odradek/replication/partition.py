"""Decisions about one partition: role, epochs, ISR, high watermark, acknowledgement and truncation.

It gets LeaderAndIsr states, follower fetches, appended offsets and the time, and returns new offsets, ISR proposals and
error codes. Nothing here waits, logs or writes: `replica_manager` and `roles` carry the decisions out and own the log,
which this module uses only through `ReplicaLog`. Methods on the hot path return plain numbers instead of raising.

Invariants: while this broker leads in one epoch, the high watermark never falls, and it is never above the log end
offset of any member of the maximal ISR, nor raised above the leader's own durable limit; log start <= high watermark
<= log end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from odradek.base.config import TopicConfig
from odradek.base.types import NO_BROKER, NO_EPOCH, NO_OFFSET, TopicPartition
from odradek.replication.isr import FailedProposal, InSyncSet, IsrEvent, refusal_of

NOT_LEADER_OR_FOLLOWER: Final = 6
NOT_ENOUGH_REPLICAS_AFTER_APPEND: Final = 20
FENCED_LEADER_EPOCH: Final = 74
UNKNOWN_LEADER_EPOCH: Final = 75

BARRED_MS: Final = 1_000.0
"""After a rejection, a replica is not proposed again for this long; the time doubles with each further one."""


class Role(Enum):
    """This broker's role for the partition."""

    NONE = "none"
    LEADER = "leader"
    FOLLOWER = "follower"


class ReplicaLog(Protocol):
    """The part of the local log that the decisions need."""

    high_watermark: int

    @property
    def config(self) -> TopicConfig:
        """The topic's settings."""
        ...

    @property
    def log_start_offset(self) -> int:
        """First offset that can be read."""
        ...

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record."""
        ...

    @property
    def durable_limit(self) -> int:
        """Records at and above this offset wait for a flush that `flush.messages` requires."""
        ...

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest open transaction; None if there is none."""
        ...


LogT_co = TypeVar("LogT_co", bound=ReplicaLog, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrState:
    """One partition's state as decided by the controller: an entry of a LeaderAndIsr request."""

    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int
    """The znode version of the partition's state."""
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    is_new: bool = False
    """The partition was just created, so a missing log is not a lost one."""


class IsrProposal(NamedTuple):
    """A proposed ISR, committed only if both epochs still match."""

    topic_partition: TopicPartition
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


class RemoteReplica:
    """The leader's view of one follower. Times are monotonic milliseconds."""

    __slots__ = (
        "barred_until_ms",
        "broker_epoch",
        "broker_id",
        "last_caught_up_ms",
        "last_fetch_leader_end_offset",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
        "refusals",
        "unawaited_until_ms",
    )

    def __init__(self, broker_id: int) -> None:
        """Create a replica without known state."""
        self.broker_id: Final = broker_id
        self.broker_epoch: int = NO_EPOCH
        """The latest broker epoch of the follower that has fetched (KIP-903)."""
        self.reset(is_in_sync=False, now_ms=0.0)

    def reset(self, *, is_in_sync: bool, now_ms: float) -> None:
        """Reset the state when this broker becomes leader; ISR members count as caught up at `now_ms`."""
        self.log_end_offset: int = NO_OFFSET
        self.log_start_offset: int = NO_OFFSET
        self.last_fetch_leader_end_offset: int = NO_OFFSET
        self.last_fetch_ms: float = -inf
        self.last_caught_up_ms: float = now_ms if is_in_sync else -inf
        self._forgive()

    def renew(self, *, is_in_sync: bool, now_ms: float, leader_end_offset: int) -> None:
        """Keep the offsets but restart the times: the same leader has a new epoch."""
        self.last_fetch_leader_end_offset = leader_end_offset
        self.last_fetch_ms = self.last_caught_up_ms = now_ms if is_in_sync else -inf
        self._forgive()

    def live(self, broker_epoch: int) -> None:
        """Set the broker epoch of the fetching follower, -1 if unknown. A restarted broker may be proposed again."""
        if broker_epoch > self.broker_epoch:
            self.broker_epoch = broker_epoch
            self._forgive()

    def _forgive(self) -> None:
        self.refusals = 0
        self.barred_until_ms: float = -inf
        """The replica is not proposed for the ISR before this time."""
        self.unawaited_until_ms: float = -inf
        """The high watermark does not wait for the replica to join before this time."""

    def refuse(self, lag_max_ms: float) -> None:
        """Record that the controller refused the replica, for example because its broker is shutting down."""
        self.barred_until_ms = self.last_fetch_ms + min(BARRED_MS * (1 << min(self.refusals, 10)), lag_max_ms)
        self.unawaited_until_ms = self.last_fetch_ms + lag_max_ms
        self.refusals += 1

    def fetched(self, offset: int, log_start_offset: int, now_ms: float, leader_end_offset: int) -> None:
        """Record that the follower fetched from `offset`, so that it has everything before it.

        The follower has caught up now if it is at the leader's log end. If it has reached the log end at the time of
        its previous fetch, it had caught up then: the follower of a busy leader is never quite at the end.
        """
        if offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif offset >= self.last_fetch_leader_end_offset and self.last_fetch_ms > self.last_caught_up_ms:
            self.last_caught_up_ms = self.last_fetch_ms
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.last_fetch_leader_end_offset = max(self.last_fetch_leader_end_offset, leader_end_offset)
        self.last_fetch_ms = now_ms

    def is_caught_up(self, leader_end_offset: int, now_ms: float, lag_max_ms: float) -> bool:
        """Whether the follower is at the leader's log end, or was less than `lag_max_ms` ago."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_max_ms


class Partition(Generic[LogT_co]):
    """One hosted partition.

    `log` is the local replica; `mover` replaces it when the replica moves to another directory. All other attributes
    change only through the methods.
    """

    __slots__ = (
        "_lag_max_ms",
        "_may_join",
        "_remote",
        "adding_replicas",
        "controller_epoch",
        "in_sync",
        "is_leader",
        "leader_epoch",
        "leader_epoch_start_offset",
        "leader_id",
        "local_id",
        "log",
        "partition_epoch",
        "removing_replicas",
        "replicas",
        "role",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        log: LogT_co,
        *,
        local_id: int,
        lag_max_ms: float,
        may_join: Callable[[int], bool] = lambda broker_id: True,
    ) -> None:
        """`local_id`: this broker. `lag_max_ms`: `replica.lag.time.max.ms`. `may_join`: false for brokers that left."""
        self.topic_partition: Final = topic_partition
        self.log = log
        self.local_id: Final = local_id
        self._lag_max_ms = lag_max_ms
        self._may_join = may_join
        self.role = Role.NONE
        self.is_leader = False
        self.leader_id: int = NO_BROKER
        self.leader_epoch: int = NO_EPOCH
        self.leader_epoch_start_offset: int | None = None
        self.partition_epoch = -1
        self.controller_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.adding_replicas: tuple[int, ...] = ()
        self.removing_replicas: tuple[int, ...] = ()
        self.in_sync = InSyncSet()
        self._remote: dict[int, RemoteReplica] = {}

    # Roles

    def become_leader(self, state: LeaderAndIsrState, now_ms: float) -> bool:
        """Lead in the state's epoch. Returns False if this broker was already the leader in an older epoch.

        The caller then records `leader_epoch_start_offset` in the log's epoch cache and calls `advance`.
        """
        is_new_leader = not self.is_leader
        self._assume(state, Role.LEADER)
        self.leader_epoch_start_offset = end = self.log.log_end_offset
        self.in_sync = InSyncSet(state.isr, state.isr)
        known = self._remote
        self._remote = {}
        for broker_id in state.replicas:
            if broker_id == self.local_id:
                continue
            replica = known.get(broker_id)
            is_in_sync = broker_id in state.isr
            if replica is None or is_new_leader:
                replica = RemoteReplica(broker_id)
                replica.reset(is_in_sync=is_in_sync, now_ms=now_ms)
            else:
                replica.renew(is_in_sync=is_in_sync, now_ms=now_ms, leader_end_offset=end)
            self._remote[broker_id] = replica
        return is_new_leader

    def become_follower(self, state: LeaderAndIsrState) -> bool:
        """Follow in the state's epoch. Returns False if this broker already followed the same leader."""
        changed = self.role is not Role.FOLLOWER or self.leader_id != state.leader
        self._assume(state, Role.FOLLOWER)
        self.leader_epoch_start_offset = None
        self.in_sync = InSyncSet()  # only the leader uses it
        self._remote = {}
        return changed

    def retire(self) -> None:
        """End the role because this broker no longer hosts the partition; waiting requests notice it."""
        self.role = Role.NONE
        self.is_leader = False
        self.leader_id = NO_BROKER
        self._remote = {}

    def _assume(self, state: LeaderAndIsrState, role: Role) -> None:
        self.role = role
        self.is_leader = role is Role.LEADER
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.controller_epoch = state.controller_epoch
        self.replicas = state.replicas
        self.adding_replicas = state.adding_replicas
        self.removing_replicas = state.removing_replicas

    def leadership_error(self, current_leader_epoch: int, leader_only: bool) -> int:
        """Return 0, or the error code for a request with `current_leader_epoch` (-1: not specified), KIP-320."""
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            return FENCED_LEADER_EPOCH if current_leader_epoch < self.leader_epoch else UNKNOWN_LEADER_EPOCH
        if self.is_leader or not leader_only:
            return 0
        return NOT_LEADER_OR_FOLLOWER

    # Offsets

    @property
    def high_watermark(self) -> int:
        """Offset below which all records are committed."""
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Offset below which no transaction is open: the limit of `read_committed`."""
        unstable, high_watermark = self.log.first_unstable_offset, self.log.high_watermark
        return high_watermark if unstable is None or unstable > high_watermark else unstable

    @property
    def min_in_sync(self) -> int:
        """`min.insync.replicas`, but at most the number of replicas."""
        return min(self.log.config.min_insync_replicas, len(self._remote) + 1)

    @property
    def is_under_min_isr(self) -> bool:
        """Whether acks=all is refused."""
        return self.is_leader and len(self.in_sync.committed) < self.min_in_sync

    @property
    def is_alone(self) -> bool:
        """Whether this broker leads and has the only replica: its own log decides about acks=all."""
        return self.is_leader and not self._remote

    @property
    def is_under_replicated(self) -> bool:
        """Whether an assigned replica is out of sync; replicas being added do not count."""
        return self.is_leader and len(self.in_sync.committed) < len(self.replicas) - len(self.adding_replicas)

    def advance(self, now_ms: float) -> bool:
        """Raise the leader's high watermark to what is replicated. Returns whether it rose.

        The high watermark also waits for a replica that has caught up but is not yet in the ISR: otherwise it would
        always stay ahead of that replica, which could then never join. It does not wait for a replica that has left or
        was refused, which may never fetch again. Below `min.insync.replicas` the high watermark does not move (as in
        Kafka 3.7 and later), so that records that a later leader might lose are not visible to anyone. The leader
        counts itself up to its durable limit.
        """
        log = self.log
        end = candidate = log.log_end_offset
        limit = log.durable_limit
        if limit < candidate:
            candidate = limit
        remote = self._remote
        if remote:
            if len(self.in_sync.committed) < self.min_in_sync:
                return False
            maximal = self.in_sync.maximal
            for replica in remote.values():
                if replica.log_end_offset < candidate and (
                    replica.broker_id in maximal or self._is_joining(replica, end, now_ms)
                ):
                    candidate = replica.log_end_offset
        if candidate <= log.high_watermark:
            return False
        log.high_watermark = candidate
        return True

    def _is_joining(self, replica: RemoteReplica, end: int, now_ms: float) -> bool:
        return (
            now_ms >= replica.unawaited_until_ms
            and replica.is_caught_up(end, now_ms, self._lag_max_ms)
            and self._may_join(replica.broker_id)
        )

    def follow(self, leader_high_watermark: int) -> bool:
        """Adopt the leader's high watermark; it may fall with a new leader. Returns whether it changed."""
        log = self.log
        mark = max(log.log_start_offset, min(leader_high_watermark, log.log_end_offset))
        if mark == log.high_watermark:
            return False
        log.high_watermark = mark
        return True

    def acknowledged(self, required_offset: int) -> int | None:
        """Return, for acks=all, None while replicas still have to copy, else 0 or the error code to answer with."""
        if not self.is_leader:
            return NOT_LEADER_OR_FOLLOWER
        if self.log.high_watermark < required_offset:
            return None
        return 0 if len(self.in_sync.maximal) >= self.min_in_sync else NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def synced(self, required_offset: int) -> int | None:
        """Return, for acks=1, None while the leader's records wait for a required flush, else 0 or the error code."""
        if not self.is_leader:
            return NOT_LEADER_OR_FOLLOWER
        return 0 if required_offset <= self.log.durable_limit else None

    # Followers as seen by the leader

    def followers(self) -> Iterable[RemoteReplica]:
        """Return the state of all followers; empty if this broker is not the leader."""
        return self._remote.values()

    def is_settled(self, replica: RemoteReplica) -> bool:
        """Whether another fetch at the leader's log end would change nothing: the follower is in sync and there."""
        return (
            replica.log_end_offset == self.log.log_end_offset
            and replica.broker_id in self.in_sync.committed
            and self._remote.get(replica.broker_id) is replica
        )

    def remote_replica(self, broker_id: int) -> RemoteReplica | None:
        """Return the state of a follower; None if it is not assigned or this broker is not the leader."""
        return self._remote.get(broker_id)

    def should_expand(self, replica: RemoteReplica) -> bool:
        """Whether to propose the follower for the ISR: it has all committed records and reached this leader's epoch."""
        in_sync = self.in_sync
        start = self.leader_epoch_start_offset
        return (
            replica.broker_id not in in_sync.committed
            and not in_sync.is_pending
            and replica.last_fetch_ms >= replica.barred_until_ms
            and start is not None
            and replica.log_end_offset >= self.log.high_watermark
            and replica.log_end_offset >= start
        )

    def propose_expansion(self, broker_id: int) -> IsrProposal:
        """Propose that a replica joins the ISR; the proposal is pending from now on."""
        self.in_sync = self.in_sync.step(IsrEvent.EXPAND, (*self.in_sync.committed, broker_id))
        return self._proposal()

    def lagging(self, now_ms: float) -> tuple[int, ...]:
        """Return the ISR members that have not caught up for too long; none while a change is pending."""
        if not self.is_leader or self.in_sync.is_pending:
            return ()
        end = self.log.log_end_offset
        found: list[int] = []
        for broker_id in self.in_sync.committed:
            replica = self._remote.get(broker_id)
            if broker_id != self.local_id and (
                replica is None or not replica.is_caught_up(end, now_ms, self._lag_max_ms)
            ):
                found.append(broker_id)
        return tuple(found)

    def propose_shrinking(self, broker_ids: tuple[int, ...]) -> IsrProposal:
        """Propose that replicas leave the ISR; the proposal is pending from now on."""
        self.in_sync = self.in_sync.step(
            IsrEvent.SHRINK, tuple(member for member in self.in_sync.committed if member not in broker_ids)
        )
        return self._proposal()

    def is_current(self, proposal: IsrProposal) -> bool:
        """Whether the proposal is the pending one; if not, newer state has superseded it."""
        return (
            self.is_leader
            and self.in_sync.is_pending
            and self.in_sync.proposed == proposal.isr
            and self.leader_epoch == proposal.leader_epoch
            and self.partition_epoch == proposal.partition_epoch
        )

    def accept(self, proposal: IsrProposal, *, leader_epoch: int, isr: tuple[int, ...], partition_epoch: int) -> bool:
        """Apply the committed answer to a proposal. Returns False if it is superseded or of another leader epoch."""
        if not self.is_current(proposal) or leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return False
        self.in_sync = self.in_sync.step(IsrEvent.COMMIT, isr)
        self.partition_epoch = partition_epoch
        return True

    def refuse(self, proposal: IsrProposal, code: int) -> FailedProposal:
        """Handle an error answer to a proposal. Returns what to do next: WAIT for a superseded one."""
        if not self.is_current(proposal):
            return FailedProposal.WAIT
        refusal = refusal_of(code)
        if refusal is FailedProposal.REVERT:
            for broker_id in set(proposal.isr) - set(self.in_sync.committed):
                self._remote[broker_id].refuse(self._lag_max_ms)
            self.in_sync = self.in_sync.step(IsrEvent.REJECT)
        return refusal

    def _proposal(self) -> IsrProposal:
        return IsrProposal(self.topic_partition, self.leader_epoch, self.in_sync.proposed, self.partition_epoch)


class EpochEnd(NamedTuple):
    """A leader epoch and its end offset (exclusive) in a log. Both are -1 if unknown."""

    leader_epoch: int
    end_offset: int


class Truncation(NamedTuple):
    """Truncate to `offset`. If not `is_complete`, ask the leader again with the follower's new last epoch."""

    offset: int
    is_complete: bool


def truncation_target(leader: EpochEnd, local: EpochEnd, *, log_end_offset: int, high_watermark: int) -> Truncation:
    """Return where a follower's log diverges from its leader's (KIP-101, KIP-279).

    `leader`: the leader's largest epoch at or below the follower's last one, with its end. `local`: the follower's own
    largest epoch at or below `leader.leader_epoch`, with its end; both are -1 if its log has none.
    """
    if leader.end_offset == NO_OFFSET:
        return Truncation(min(high_watermark, log_end_offset), True)
    if leader.leader_epoch == NO_EPOCH or local.leader_epoch == NO_EPOCH:
        return Truncation(min(leader.end_offset, log_end_offset), True)
    if local.leader_epoch != leader.leader_epoch:
        return Truncation(min(local.end_offset, log_end_offset), False)
    return Truncation(min(local.end_offset, leader.end_offset, log_end_offset), True)


def is_diverging(requested_epoch: int, fetch_offset: int, leader: EpochEnd) -> bool:
    """Whether a fetch after (`requested_epoch`, `fetch_offset`) diverges from the leader's log (KIP-595)."""
    return leader.leader_epoch < requested_epoch or leader.end_offset < fetch_offset
