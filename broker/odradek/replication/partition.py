"""Decisions of one partition: role, epochs, in-sync set, high watermark, acknowledgement, truncation.

LeaderAndIsr states, follower fetches, appended offsets and the time enter; new marks, proposals and error codes leave.
Nothing here waits, logs or writes: `manager` and `leadership` carry the decisions out and own the log, which is seen
here only through `ReplicaLog`. Hot-path methods return plain numbers instead of raising.

Invariants: while this broker leads in one epoch the high watermark never falls, and it is never above the log end
offset of any member of the maximal in-sync set; log start <= high watermark <= log end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from odradek.base.config import TopicConfig
from odradek.base.types import NO_BROKER, NO_EPOCH, NO_OFFSET, TopicPartition
from odradek.replication.isr import Event, InSyncSet, Refusal, refusal_of

NOT_LEADER_OR_FOLLOWER: Final = 6
NOT_ENOUGH_REPLICAS_AFTER_APPEND: Final = 20
FENCED_LEADER_EPOCH: Final = 74
UNKNOWN_LEADER_EPOCH: Final = 75

BARRED_MS: Final = 1_000.0
"""After a refusal a replica is not proposed again for so long; twice as long after each further one."""


class Role(Enum):
    """What this broker is to the partition."""

    NONE = "none"
    LEADER = "leader"
    FOLLOWER = "follower"


class ReplicaLog(Protocol):
    """What the decisions need of the local log."""

    high_watermark: int

    @property
    def config(self) -> TopicConfig:
        """The topic's settings."""
        ...

    @property
    def log_start_offset(self) -> int:
        """First offset that may be read."""
        ...

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record."""
        ...

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest open transaction."""
        ...


LogT_co = TypeVar("LogT_co", bound=ReplicaLog, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrState:
    """One partition's state as the controller decided it: an entry of a LeaderAndIsr request."""

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
    """The partition was just created: a missing log is no loss."""


class IsrProposal(NamedTuple):
    """An in-sync set to be committed on condition of both epochs."""

    topic_partition: TopicPartition
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


class RemoteReplica:
    """What the leader knows of one follower. Times are monotonic milliseconds."""

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
        """A replica of which nothing is known yet."""
        self.broker_id: Final = broker_id
        self.broker_epoch: int = NO_EPOCH
        """The latest life of the follower's broker that has fetched (KIP-903)."""
        self.reset(is_in_sync=False, now_ms=0.0)

    def reset(self, *, is_in_sync: bool, now_ms: float) -> None:
        """Forget everything at the start of a reign; members of the in-sync set get a fresh allowance of time."""
        self.log_end_offset: int = NO_OFFSET
        self.log_start_offset: int = NO_OFFSET
        self.last_fetch_leader_end_offset: int = NO_OFFSET
        self.last_fetch_ms: float = -inf
        self.last_caught_up_ms: float = now_ms if is_in_sync else -inf
        self._forgive()

    def renew(self, *, is_in_sync: bool, now_ms: float, leader_end_offset: int) -> None:
        """The same leader got a new epoch: keep the offsets, restart the times."""
        self.last_fetch_leader_end_offset = leader_end_offset
        self.last_fetch_ms = self.last_caught_up_ms = now_ms if is_in_sync else -inf
        self._forgive()

    def live(self, broker_epoch: int) -> None:
        """The life of its broker that fetches; -1: it does not say. A new one has a new chance to join."""
        if broker_epoch > self.broker_epoch:
            self.broker_epoch = broker_epoch
            self._forgive()

    def _forgive(self) -> None:
        self.refusals = 0
        self.barred_until_ms: float = -inf
        """Until then it is not proposed for the in-sync set."""
        self.unawaited_until_ms: float = -inf
        """Until then no mark waits for it to join."""

    def refuse(self, lag_max_ms: float) -> None:
        """The controller does not let it join: its broker shuts down, say, and soon will never fetch again."""
        self.barred_until_ms = self.last_fetch_ms + min(BARRED_MS * (1 << min(self.refusals, 10)), lag_max_ms)
        self.unawaited_until_ms = self.last_fetch_ms + lag_max_ms
        self.refusals += 1

    def fetched(self, offset: int, log_start_offset: int, now_ms: float, leader_end_offset: int) -> None:
        """The follower asked for `offset`, so it has everything before.

        It has caught up now when it is at the leader's end, or had caught up at its previous fetch when it has come
        to where the leader's end was then: a follower of a busy leader is never quite at the end.
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
        """Whether the follower is at the leader's end or was less than `lag_max_ms` ago."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_max_ms


class Partition(Generic[LogT_co]):
    """One hosted partition.

    `log` is the local replica, replaced by `mover` when it comes to lie in another directory; all other attributes
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
        """`local_id`: this broker. `lag_max_ms`: `replica.lag.time.max.ms`. `may_join`: not a broker that is gone."""
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
        """Lead in the state's epoch; False when this broker led before, in an older epoch.

        The caller then notes `leader_epoch_start_offset` in the log's epoch cache and calls `advance`.
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
        """Follow in the state's epoch; False when this broker followed the same leader before."""
        changed = self.role is not Role.FOLLOWER or self.leader_id != state.leader
        self._assume(state, Role.FOLLOWER)
        self.leader_epoch_start_offset = None
        self.in_sync = InSyncSet()  # only the leader decides with it
        self._remote = {}
        return changed

    def retire(self) -> None:
        """This broker hosts the partition no longer; whoever waits for it notices."""
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
        """0, or the error code for a request that believes in `current_leader_epoch` (-1: does not say), KIP-320."""
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            return FENCED_LEADER_EPOCH if current_leader_epoch < self.leader_epoch else UNKNOWN_LEADER_EPOCH
        if self.is_leader or not leader_only:
            return 0
        return NOT_LEADER_OR_FOLLOWER

    # Marks

    @property
    def high_watermark(self) -> int:
        """Offset below which every record is committed."""
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Offset below which no transaction is open: what `read_committed` may read."""
        unstable, high_watermark = self.log.first_unstable_offset, self.log.high_watermark
        return high_watermark if unstable is None or unstable > high_watermark else unstable

    @property
    def min_in_sync(self) -> int:
        """`min.insync.replicas`, but never more than there are replicas."""
        return min(self.log.config.min_insync_replicas, len(self._remote) + 1)

    @property
    def is_under_min_isr(self) -> bool:
        """Whether acks=all is refused."""
        return self.is_leader and len(self.in_sync.committed) < self.min_in_sync

    @property
    def is_under_replicated(self) -> bool:
        """Whether an assigned replica is out of sync; replicas being added do not count."""
        return self.is_leader and len(self.in_sync.committed) < len(self.replicas) - len(self.adding_replicas)

    def advance(self, now_ms: float) -> bool:
        """Raise the leader's high watermark to what is replicated; whether it rose.

        It also waits for a replica that has caught up but is not yet in the set: else the mark would run ahead of
        that replica's end for ever and it could never join. One that is gone or was refused is not waited for: it may
        never fetch again. Below the minimum in-sync set the mark stands still (as in Kafka 3.7 and later): what a
        later leader might lose is not shown to anyone.
        """
        log = self.log
        end = candidate = log.log_end_offset
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
        """Set a follower's high watermark from its leader's; whether it changed. It may fall with a new leader."""
        log = self.log
        mark = max(log.log_start_offset, min(leader_high_watermark, log.log_end_offset))
        if mark == log.high_watermark:
            return False
        log.high_watermark = mark
        return True

    def acknowledged(self, required_offset: int) -> int | None:
        """For acks=all: None while replicas must still copy, else 0 or the error code to answer with."""
        if not self.is_leader:
            return NOT_LEADER_OR_FOLLOWER
        if self.log.high_watermark < required_offset:
            return None
        return 0 if len(self.in_sync.maximal) >= self.min_in_sync else NOT_ENOUGH_REPLICAS_AFTER_APPEND

    # Followers, seen by the leader

    def followers(self) -> Iterable[RemoteReplica]:
        """What is known of every follower; nothing where this broker does not lead."""
        return self._remote.values()

    def is_settled(self, replica: RemoteReplica) -> bool:
        """Whether one more fetch at the leader's end would change nothing: the follower is in sync and there."""
        return (
            replica.log_end_offset == self.log.log_end_offset
            and replica.broker_id in self.in_sync.committed
            and self._remote.get(replica.broker_id) is replica
        )

    def remote_replica(self, broker_id: int) -> RemoteReplica | None:
        """What is known of a follower; None when it is not assigned or this broker does not lead."""
        return self._remote.get(broker_id)

    def should_expand(self, replica: RemoteReplica) -> bool:
        """Whether the follower may join: it has all that is committed and has reached this leader's epoch."""
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
        """Ask that a replica joins; pending from now on."""
        self.in_sync = self.in_sync.step(Event.EXPAND, (*self.in_sync.committed, broker_id))
        return self._proposal()

    def lagging(self, now_ms: float) -> tuple[int, ...]:
        """Members of the in-sync set that have not caught up for too long; none while a change is pending."""
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
        """Ask that replicas leave; pending from now on."""
        self.in_sync = self.in_sync.step(
            Event.SHRINK, tuple(member for member in self.in_sync.committed if member not in broker_ids)
        )
        return self._proposal()

    def is_current(self, proposal: IsrProposal) -> bool:
        """Whether the proposal is the one that is pending; else something newer has overtaken its answer."""
        return (
            self.is_leader
            and self.in_sync.is_pending
            and self.in_sync.proposed == proposal.isr
            and self.leader_epoch == proposal.leader_epoch
            and self.partition_epoch == proposal.partition_epoch
        )

    def accept(self, proposal: IsrProposal, *, leader_epoch: int, isr: tuple[int, ...], partition_epoch: int) -> bool:
        """Take the committed answer to a proposal; False when it is overtaken or not of this reign."""
        if not self.is_current(proposal) or leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return False
        self.in_sync = self.in_sync.step(Event.COMMIT, isr)
        self.partition_epoch = partition_epoch
        return True

    def refuse(self, proposal: IsrProposal, code: int) -> Refusal:
        """Take an error answer to a proposal; what to do next (an overtaken proposal is to be forgotten: WAIT)."""
        if not self.is_current(proposal):
            return Refusal.WAIT
        refusal = refusal_of(code)
        if refusal is Refusal.REVERT:
            for broker_id in set(proposal.isr) - set(self.in_sync.committed):
                self._remote[broker_id].refuse(self._lag_max_ms)
            self.in_sync = self.in_sync.step(Event.REJECT)
        return refusal

    def _proposal(self) -> IsrProposal:
        return IsrProposal(self.topic_partition, self.leader_epoch, self.in_sync.proposed, self.partition_epoch)


class EpochEnd(NamedTuple):
    """The last offset, exclusive, of a leader epoch in someone's log. Both -1: unknown there."""

    leader_epoch: int
    end_offset: int


class Truncation(NamedTuple):
    """Cut to `offset`. When not `is_complete`, ask the leader again with the follower's then last epoch."""

    offset: int
    is_complete: bool


def truncation_target(leader: EpochEnd, local: EpochEnd, *, log_end_offset: int, high_watermark: int) -> Truncation:
    """Where a follower's log parts from its leader's (KIP-101, KIP-279).

    `leader`: the leader's largest epoch at or below the follower's last one, with its end. `local`: the follower's own
    largest epoch at or below `leader.leader_epoch`, with its end; both -1 when its log knows none.
    """
    if leader.end_offset == NO_OFFSET:
        return Truncation(min(high_watermark, log_end_offset), True)
    if leader.leader_epoch == NO_EPOCH or local.leader_epoch == NO_EPOCH:
        return Truncation(min(leader.end_offset, log_end_offset), True)
    if local.leader_epoch != leader.leader_epoch:
        return Truncation(min(local.end_offset, log_end_offset), False)
    return Truncation(min(local.end_offset, leader.end_offset, log_end_offset), True)


def is_diverging(requested_epoch: int, fetch_offset: int, leader: EpochEnd) -> bool:
    """Whether a fetch after (`requested_epoch`, `fetch_offset`) parts from the leader's log (KIP-595)."""
    return leader.leader_epoch < requested_epoch or leader.end_offset < fetch_offset
