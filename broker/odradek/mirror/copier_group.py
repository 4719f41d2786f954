"""The partitions that one process of a mirror copies: processes share them as members of a group of the target.

`mirror_process` runs it, and tells it what is to be copied. The members of the group `odradek-mirror-<name>` subscribe
to the topics of the target that are copied into, and the group distributes their partitions: who gets a partition of
the target copies the partition of the source into it. Nothing is read from these topics. The offsets of the group are
the positions in the sources (`copy_positions`).

Invariants:

1. A partition is copied only between `on_assigned` and `on_revoked` or `on_lost` of the membership. A revocation waits
   for the end of the round that has the partition.
2. A partition starts at the position that the group has. The position is read only when no open transaction can change
   it.
3. The owner of partition 0 of `mm2-offset-syncs.<source>.internal` leads the source: only it translates the offsets of
   groups.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from odradek.base.errors import (
    LogTruncationError,
    OdradekError,
    OffsetOutOfRangeError,
    ProtocolError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from odradek.base.ports import Clock
from odradek.base.tasks import finish
from odradek.base.types import TopicPartition
from odradek.client.cluster_client import Cluster
from odradek.client.consumer.group_member import GroupMember
from odradek.client.metadata import Backoff
from odradek.client.models import GroupMetadata, OffsetAndMetadata
from odradek.client.offsets import fetch_committed
from odradek.client.settings import ClientSettings
from odradek.mirror.copy_positions import CopyPosition, PartitionStoppedError, check_position, decode_position
from odradek.mirror.copy_rounds import CopyListener, CopyRounds
from odradek.mirror.mirror_config import ClusterAddress, MirrorConfig, SourceConfig
from odradek.mirror.mirror_plan import CopiedPartition
from odradek.mirror.mm2_records import offset_syncs_topic
from odradek.mirror.owned_partitions import CopyState, OwnedPartition, OwnedPartitions
from odradek.mirror.source_reader import ReadableRange, SourceReader
from odradek.protocol.messages.membership import LeaveGroupResponse

_LOG: Final = logging.getLogger(__name__)

_CHECK_MS: Final = 1_000.0
"""How often failed partitions are looked at."""
_BACKOFF: Final = Backoff(500, 15_000)

TARGET_DEFAULTS: Final[Mapping[str, object]] = {
    "session_timeout_ms": 10_000,
    "max_poll_interval_ms": 60_000,
    "transaction_timeout_ms": 30_000,
    "request_timeout_ms": 15_000,
    "retry_backoff_ms": 50,
    "delivery_timeout_ms": 30_000,
    "max_block_ms": 30_000,
    "max_request_size": 16 << 20,
    "buffer_memory": 64 << 20,
}
"""Settings of the target's clients unless `target.properties` sets them. Short timeouts, because another process can
only copy the partitions of one that died after them."""

Leading = Callable[[str, bool], None]
"""Called with the name of a source when this process begins or ends to lead it."""


def target_settings(target: ClusterAddress, name: str) -> ClientSettings:
    """Return the settings of the clients that a mirror uses for its target. `name` is the client id."""
    given = {key.lower().replace("_", ".").removeprefix("kafka.") for key in target.properties}
    defaults = {key: value for key, value in TARGET_DEFAULTS.items() if key.replace("_", ".") not in given}
    return target.settings(**defaults, client_id=name)


class CopierGroup:
    """The copying part of one process. `run` lasts until `stop`, or until the process cannot be a member any more."""

    def __init__(
        self,
        config: MirrorConfig,
        *,
        instance: str,
        is_static: bool,
        clock: Clock,
        listeners: Mapping[str, CopyListener],
        on_leading: Leading,
    ) -> None:
        """`instance` is unique among the processes of the mirror. If `is_static`, the process has the same one after a
        restart: then it gets its partitions back at once (KIP-345), and a transaction that it left open is aborted at
        once. `listeners` have the names of sources as keys.
        """
        self._config: Final = config
        self._clock: Final = clock
        self._instance: Final = instance if is_static else None
        name = f"{config.group}-{instance}"
        settings = target_settings(config.target, name)
        self._cluster: Final = Cluster(
            settings.replace(
                group_id=config.group,
                group_instance_id=self._instance,
                group_protocol="classic",
                partition_assignment_strategy=("cooperative-sticky",),
            ),
            clock=clock,
        )
        self.owned: Final = OwnedPartitions()
        """The partitions that this process copies."""
        self._news: Final = asyncio.Event()
        self._checks: Final = {source.name: asyncio.Event() for source in config.sources}
        self.readers: Final = {
            source.name: SourceReader(source, config.group, clock=clock, on_news=self._wake, name=name)
            for source in config.sources
        }
        self.rounds: Final = CopyRounds(
            settings.replace(transactional_id=name, acks="all", enable_idempotence=True, linger_ms=0),
            self.readers,
            self.owned,
            rights=self,
            listeners=listeners,
            on_restart=self._check_all,
            clock=clock,
        )
        self._on_leading: Final = on_leading
        self._member: Final = GroupMember(self._cluster, config.group, self, on_news=self._news.set)
        self._plans: dict[str, frozenset[CopiedPartition]] = {}
        self._assigned: set[TopicPartition] = set()

    # What is to be copied

    def set_plan(self, source: str, partitions: frozenset[CopiedPartition]) -> None:
        """Copy exactly these partitions of a source, as far as the group gives them to this process."""
        self._plans[source] = partitions
        self._subscribe()
        self._match_plan()
        self._news.set()

    def _subscribe(self) -> None:
        topics = {each.target_topic for plan in self._plans.values() for each in plan}
        self._member.subscribe(topics | {offset_syncs_topic(source.name) for source in self._config.sources})

    @property
    def is_member(self) -> bool:
        """Whether the process is a member of the mirror's group, also during a rebalance."""
        return self._member.identity.generation_id >= 0

    def _wanted(self) -> dict[TopicPartition, CopiedPartition]:
        """Return the planned partitions by partition of the target. The first source that names one has it."""
        found: dict[TopicPartition, CopiedPartition] = {}
        for source in self._config.sources:
            for each in sorted(self._plans.get(source.name, ()), key=lambda each: (each.topic, each.partition)):
                target = TopicPartition(each.target_topic, each.partition)
                if target not in found:
                    found[target] = each
                elif found[target].topic != each.topic or found[target].source != each.source:
                    _LOG.error(
                        "topic %s of source %s is not copied: source %s is copied to %s already. Set prefix",
                        each.topic,
                        each.source,
                        found[target].source,
                        each.target_topic,
                    )
        return found

    def _match_plan(self) -> None:
        """Begin and end the copying of assigned partitions after the plan or the assignment has changed."""
        wanted = self._wanted()
        for owned in self.owned:
            if wanted.get(owned.target) != owned.partition or owned.target not in self._assigned:
                self._drop(owned)
        for target in sorted(self._assigned):
            partition = wanted.get(target)
            if partition is not None and self.owned.get(target) is None:
                self.owned.add(partition)
        self._check_all()

    def _drop(self, owned: OwnedPartition) -> None:
        self.owned.remove(owned.target)
        self.readers[owned.partition.source].remove([owned.partition])
        self.rounds.forget(owned)

    # Membership: the events of `MemberEvents`

    async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Begin to copy partitions."""
        self._assigned.update(partitions)
        self._match_plan()
        self._lead(partitions, is_leading=True)
        _LOG.info("this process has %d partitions of group %s", len(self._assigned), self._config.group)

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """End the copying of partitions, after the round that may have records of them."""
        self.rounds.waiting += 1
        try:
            async with self.rounds.lock:
                self._assigned.difference_update(partitions)
                self._match_plan()
        finally:
            self.rounds.waiting -= 1
        self._lead(partitions, is_leading=False)

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """As `on_revoked`: a round that goes on cannot be committed, because the coordinator refuses the member."""
        await self.on_revoked(partitions)

    def _lead(self, partitions: Iterable[TopicPartition], *, is_leading: bool) -> None:
        for source in self._config.sources:
            if TopicPartition(offset_syncs_topic(source.name), 0) in partitions:
                self._on_leading(source.name, is_leading)

    def metadata(self) -> GroupMetadata:
        """Return the member for commits. Raises `RebalanceInProgressError` or `UnknownMemberIdError` without one."""
        identity = self._member.identity
        if identity.generation_id < 0:
            identity = self._member.committing_identity()
        # In a rebalance, the coordinator decides by the generation.
        return GroupMetadata(self._config.group, *identity)

    def polled(self) -> None:
        """Note that the rounds make progress."""
        self._member.polled()

    async def _keep_membership(self) -> None:
        failures = 0
        while True:
            self._news.clear()
            error, self._member.error = self._member.error, None
            if error is not None:
                raise error
            if self._member.needs_join:
                try:
                    await self._member.join()
                    failures = 0
                except ProtocolError as refused:
                    failures += 1
                    _LOG.error("this process cannot join group %s: %s", self._config.group, refused)
                    await self._clock.sleep_ms(_BACKOFF.delay_ms(failures, self._clock.random()))
                continue
            await self._news.wait()

    # Starts

    def _wake(self) -> None:
        self.rounds.wake()
        if any(owned.state is CopyState.WAITING for owned in self.owned):
            self._check_all()

    def _check_all(self) -> None:
        for check in self._checks.values():
            check.set()

    async def _start_partitions(self, source: SourceConfig) -> None:
        """Start the partitions of one source that wait for their positions, until cancelled."""
        failures = 0
        reader = self.readers[source.name]
        check = self._checks[source.name]
        while True:
            check.clear()
            self.owned.retry_due(self._clock.monotonic_ms())
            waiting = self.owned.in_state(CopyState.WAITING, source.name) if reader.is_connected else []
            if waiting:
                try:
                    await self._start_or_split(reader, waiting)
                    failures = 0
                except ProtocolError as error:
                    failures += 1
                    _LOG.warning("%d partitions of source %s cannot start: %s", len(waiting), source.name, error)
                    await self._clock.sleep_ms(_BACKOFF.delay_ms(failures, self._clock.random()))
                    continue
            timer = self._clock.call_later(_CHECK_MS, check.set)
            try:
                await check.wait()
            finally:
                timer.cancel()

    async def _start_or_split(self, reader: SourceReader, waiting: Sequence[OwnedPartition]) -> None:
        """Start partitions together, or each by itself if one of them has an error."""
        try:
            await self._start(reader, waiting)
        except (UnknownTopicOrPartitionError, TopicAuthorizationFailedError) as error:
            if len(waiting) > 1:
                await asyncio.gather(*(self._start_or_split(reader, [owned]) for owned in waiting))
            else:
                waiting[0].failed(error, self._clock.monotonic_ms(), self._clock.random())

    async def _start(self, reader: SourceReader, waiting: Sequence[OwnedPartition]) -> None:
        committed = await fetch_committed(
            self._cluster,
            self._config.group,
            [owned.target for owned in waiting],
            require_stable=True,
            deadline=self._cluster.deadline("reading the positions"),
        )
        ranges = await reader.ranges(owned.partition for owned in waiting)
        for owned in waiting:
            # A rebalance may have taken it away meanwhile, and given it back.
            if self.owned.get(owned.target) is not owned or owned.state is not CopyState.WAITING:
                continue
            try:
                position = self._position(reader, owned, committed.get(owned.target), ranges[owned.partition])
            except PartitionStoppedError as error:
                owned.failed(error, self._clock.monotonic_ms(), self._clock.random())
                continue
            owned.started(position)
            self.rounds.resume(owned)
            reader.add(owned.partition, position)

    def _position(
        self, reader: SourceReader, owned: OwnedPartition, committed: OffsetAndMetadata | None, log: ReadableRange
    ) -> CopyPosition:
        """Return where to start. Raises `PartitionStoppedError` if the source does not have the records there."""
        partition, source = owned.partition, reader.config
        known = None if committed is None else decode_position(committed)
        if known is None and committed is not None:
            raise PartitionStoppedError(
                f"the offset of {owned.target} in group {self._config.group} was not committed by a mirror: delete it"
            )
        if known is None:
            offset = log.start if source.starting_offsets == "earliest" else log.end
            return CopyPosition(
                offset=offset, cluster_id=reader.cluster_id, topic=partition.topic, topic_id=partition.topic_id
            )
        check_position(known, partition, reader.cluster_id, self._config.group)
        if isinstance(owned.error, LogTruncationError | OffsetOutOfRangeError) or known.offset < log.start:
            return self._after_loss(source, owned, known, log)
        return known

    def _after_loss(
        self, source: SourceConfig, owned: OwnedPartition, known: CopyPosition, log: ReadableRange
    ) -> CopyPosition:
        """Return the position after lost records if they are to be skipped."""
        if known.offset < log.start:
            what = (
                f"the offsets {known.offset} to {log.start - 1} of {owned.shown} were deleted before they were copied"
            )
            following = log.start
        elif isinstance(owned.error, LogTruncationError) and owned.error.divergent_offset is not None:
            following = owned.error.divergent_offset
            what = (
                f"the log of {owned.shown} was truncated at offset {following}, and {known.offset} is the next to copy"
            )
        elif known.offset > log.end:
            following = log.end
            what = f"the log of {owned.shown} ends at offset {log.end}, before the next one to copy, {known.offset}"
        else:
            return known
        if source.on_data_loss == "fail":
            raise PartitionStoppedError(f"{what}. To go on with the records that there are, set onDataLoss: skip")
        _LOG.warning("%s. Copying goes on at offset %d", what, following)
        owned.error = None
        return CopyPosition(
            offset=following, cluster_id=known.cluster_id, topic=known.topic, topic_id=owned.partition.topic_id
        )

    # The whole

    async def run(self) -> None:
        """Copy until `stop` is called, then leave the group. Raises the error that ended the membership, such as
        `FencedInstanceIdError` if another process has the same instance.
        """
        await self._cluster.start()
        self._subscribe()
        failure: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                background = [
                    tasks.create_task(self._keep_membership(), name="membership"),
                    *(tasks.create_task(reader.run(), name=f"source {name}") for name, reader in self.readers.items()),
                    *(
                        tasks.create_task(self._start_partitions(source), name=f"starts of {source.name}")
                        for source in self._config.sources
                    ),
                ]
                try:
                    await self.rounds.run()
                finally:
                    for task in background:
                        task.cancel()
        except* OdradekError as group:
            failure = group.exceptions[0]
        finally:
            await finish(self._leave())
        if failure is not None:
            raise failure

    def stop(self) -> None:
        """Let `run` end after the round that goes on."""
        self.rounds.stop()

    async def _leave(self) -> None:
        try:
            await self._member.leave()
            if self._instance is not None and self._cluster.view.nodes:
                await self._leave_as_static()
        finally:
            await self._member.close()
            await self._cluster.close()

    async def _leave_as_static(self) -> None:
        """Leave although the membership is static: after an orderly end, others get the partitions at once."""
        message = {
            "group_id": self._config.group,
            "member_id": "",
            "members": [{"member_id": "", "group_instance_id": self._instance, "reason": "the process ends"}],
        }
        try:
            await self._cluster.ask_coordinator(self._config.group, LeaveGroupResponse, message)
        except ProtocolError as error:
            _LOG.info("the process could not leave group %s: %s", self._config.group, error)
