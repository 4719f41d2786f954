"""The load of a simulation: producers, a group, a reader and administrators, all with this project's client.

`play` calls it with a `Plan`; requests and answers go to a `History`. The load survives all faults: it retries, and
records errors instead of raising them. Invariant: when `run` returns, every record of a producer has an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from odradek.base.errors import NONE, InvalidReplicationFactorError, OdradekError, error_for
from odradek.base.types import TopicPartition
from odradek.client.admin import Admin
from odradek.client.cluster_client import Cluster
from odradek.client.models import ConfigChange, ConfigResource, NewTopic
from odradek.client.settings import ClientSettings
from odradek.protocol.messages.replicas import AlterPartitionReassignmentsResponse, ElectLeadersResponse
from odradek_testkit.simulation.errors import Violation
from odradek_testkit.simulation.history import AdminOutcome, History
from odradek_testkit.simulation.plan import (
    AddPartitions,
    AdminOperation,
    CancelReassignment,
    CreateTopic,
    DeleteTopic,
    ElectPreferred,
    Kind,
    Plan,
    Reassign,
    SetTopicConfig,
    TopicPlan,
)
from odradek_testkit.simulation.readers import Member, Reader
from odradek_testkit.simulation.transactions.preparing_clients import PreparingWriter
from odradek_testkit.simulation.transactions.transaction_logs import LogEnd
from odradek_testkit.simulation.transactions.transactional_clients import (
    Copier,
    TransactionalClient,
    TransactionalWriter,
)
from odradek_testkit.simulation.world import World
from odradek_testkit.simulation.writers import FOREVER_MS, Writer

GROUP: Final = "group"
ALL_ACKS: Final = -1

DRAIN_MS: Final = 90_000.0
"""Time limit for readers to catch up once the cluster is whole: includes the session timeouts of two dead members."""
_LOOK_MS: Final = 250.0
_OPERATION_MS: Final = 30_000
_CREATION_MS: Final = 60_000
_RETRY_MS: Final = 50


_Answer = TypeVar("_Answer", AlterPartitionReassignmentsResponse, ElectLeadersResponse)


class Workload:
    """All clients of one run. Call `prepare`, `run`, `drain` and `close` as clients (`World.as_clients`)."""

    def __init__(self, world: World, plan: Plan, history: History) -> None:
        """Starts nothing yet."""
        self._world: Final = world
        self._plan: Final = plan
        self._history: Final = history
        self.settings: Final = ClientSettings.of(
            world.bootstrap,
            request_timeout_ms=6000,
            default_api_timeout_ms=_OPERATION_MS,
            metadata_max_age_ms=20_000,
            reconnect_backoff_max_ms=1000,
        )
        topics = [topic for topic in plan.topics if topic.acks]
        written = [TopicPartition(topic.name, number) for topic in topics for number in range(topic.partitions)]
        clean = plan.kind is not Kind.UNCLEAN
        self._clean: Final = clean
        self.reader: Final = Reader(world, history, written, clean=clean)
        self._committed_reader: Final = (
            Reader(world, history, written, clean=clean, committed=True) if plan.transactions.writers else None
        )
        history.group(GROUP, clean=clean)
        self._readers: Final[list[asyncio.Task[None]]] = []
        self._preparers: Final[list[PreparingWriter]] = []

    async def prepare(self) -> None:
        """Create the topics of the plan."""
        admin = Admin(self.settings.replace(default_api_timeout_ms=_CREATION_MS), clock=self._world.clock)
        deadline_ms = self._world.now_ms + _CREATION_MS
        async with admin:
            while True:
                try:
                    await admin.create_topics([_new_topic(topic) for topic in self._plan.topics])
                    return
                except InvalidReplicationFactorError:
                    # A controller refuses topics, like Apache Kafka's, until it has received its own first metadata.
                    if self._world.now_ms > deadline_ms:
                        raise
                    await self._world.clock.sleep_ms(_RETRY_MS)

    async def run(self) -> None:
        """Run the load until all producers have their answers and all admin operations their results."""
        ends_ms = self._world.now_ms + self._plan.load_ms
        self._start_readers(ends_ms)
        settings = self.settings.replace(
            default_api_timeout_ms=FOREVER_MS, delivery_timeout_ms=FOREVER_MS, max_block_ms=FOREVER_MS
        )
        async with asyncio.TaskGroup() as watch:
            watching = watch.create_task(self._watch_readers())
            async with asyncio.TaskGroup() as load:
                for writer in self._writers():
                    load.create_task(writer.run(settings, ends_ms))
                for client in self._transactional_clients():
                    load.create_task(client.run(settings, ends_ms))
                load.create_task(self._administrate())
            watching.cancel()

    def _writers(self) -> list[Writer]:
        plan, seed = self._plan, self._plan.seed
        acked = tuple(topic for topic in plan.topics if topic.acks == ALL_ACKS)
        quick = tuple(topic for topic in plan.topics if topic.acks == 1)
        writers = []
        for number in range(plan.producers if acked else 0):
            history = self._history.producer(f"p{number}", idempotent=True)
            writers.append(Writer(self._world, history, acked, f"{seed}/producer/{number}"))
        if quick:
            history = self._history.producer("quick", idempotent=False)
            writers.append(Writer(self._world, history, quick, f"{seed}/quick"))
        return writers

    def _transactional_clients(self) -> list[TransactionalClient]:
        world, history, plan, drawn = self._world, self._history, self._plan, self._plan.transactions
        clients: list[TransactionalClient] = [
            TransactionalWriter(world, history, plan, f"t{number}") for number in range(drawn.writers)
        ]
        if drawn.copies:
            clients.append(Copier(world, history, plan))
        # Coordinators that forget transactions after an unclean election forget prepared ones, too.
        self._preparers.extend(
            PreparingWriter(world, history, plan, f"prepares{number}")
            for number in range(drawn.preparers if self._clean else 0)
        )
        return [*clients, *self._preparers]

    async def abort_unknown(self) -> None:
        """Abort the prepared transactions whose producers died before they knew of the preparation."""
        for preparer in self._preparers:
            await preparer.sweep(self.settings)

    # Readers

    def _start_readers(self, load_ends_ms: float) -> None:
        group = self._history.group(GROUP)
        topics = [topic.name for topic in self._plan.topics if topic.acks == ALL_ACKS]
        member_settings = self.settings.replace(
            group_id=GROUP, default_api_timeout_ms=15_000, **self._plan.group.settings
        )
        reader_settings = self.settings.replace(default_api_timeout_ms=FOREVER_MS)
        works: list[Coroutine[Any, Any, None]] = [self.reader.run(reader_settings)]
        if self._committed_reader is not None:
            works.append(self._committed_reader.run(reader_settings))
        for number in range(self._plan.consumers if topics else 0):
            member = Member(self._world, group, f"m{number}", f"{self._plan.seed}/member/{number}")
            works.append(member.run(member_settings, topics, load_ends_ms))
        self._readers.extend(asyncio.create_task(work) for work in works)

    async def _watch_readers(self) -> None:
        """End the run if a reader fails."""
        done, _ = await asyncio.wait(self._readers, return_when=asyncio.FIRST_COMPLETED)
        for task in self._readers:
            if task in done:
                task.result()

    async def drain(self, ends: Callable[[], dict[TopicPartition, LogEnd]]) -> None:
        """Wait until the reader and the group have read everything up to `ends`. Raises `Violation` on timeout."""
        deadline_ms = self._world.now_ms + DRAIN_MS
        while left := self._unread(ends()):
            if self._world.now_ms >= deadline_ms:
                raise Violation("everything-is-read", "; ".join(left))
            for task in self._readers:
                if task.done():
                    task.result()
            await self._world.clock.sleep_ms(_LOOK_MS)

    def _unread(self, ends: dict[TopicPartition, LogEnd]) -> list[str]:
        left = []
        acked = {topic.name for topic in self._plan.topics if topic.acks == ALL_ACKS}
        group = self._history.group(GROUP)
        for partition, (end, visible_end) in ends.items():
            at = self.reader.next_offset(partition)
            if at < end:
                left.append(f"the reader is at {at} of {end} in {partition}")
            reader = self._committed_reader
            if reader is not None and self._clean and (at := reader.next_offset(partition)) < visible_end:
                left.append(f"the reader of committed records is at {at} of {visible_end} in {partition}")
            handed = max(group.handed.get(partition, ()), default=-1) + 1
            if partition.topic in acked and self._plan.consumers and handed < end:
                left.append(f"the group is at {handed} of {end} in {partition}")
        return left

    async def close(self) -> None:
        """End the readers as if their hosts had died."""
        for task in self._readers:
            task.cancel()
        if self._readers:
            await asyncio.wait(self._readers)

    # Administration

    async def _administrate(self) -> None:
        begun_ms = self._world.now_ms
        settings = self.settings.replace(client_id="admin", default_api_timeout_ms=FOREVER_MS)
        async with Cluster(settings, clock=self._world.clock) as cluster:
            # Each operation has a timeout, so that the next one follows even if it hangs.
            hands = _Hands(cluster, Admin(settings, clock=self._world.clock, cluster=cluster))
            for at_ms, operation in self._plan.operations:
                await self._world.clock.sleep_ms(max(0.0, begun_ms + at_ms - self._world.now_ms))
                error = await self._attempt(hands, operation)
                what = str(operation)
                self._world.note("admin", what, error or "done")
                self._history.operations.append(AdminOutcome(at_ms=self._world.now_ms, operation=what, error=error))

    async def _attempt(self, hands: _Hands, operation: AdminOperation) -> str:
        try:
            async with asyncio.timeout(_OPERATION_MS / 1000):
                await hands.do(operation)
        except TimeoutError:
            return "no answer"
        except OdradekError as error:
            return type(error).__name__
        return ""


class _Hands:
    """Carries out one operation."""

    def __init__(self, cluster: Cluster, admin: Admin) -> None:
        self._cluster: Final = cluster
        self._admin: Final = admin

    async def do(self, operation: AdminOperation) -> None:
        match operation:
            case CreateTopic(topic=topic):
                await self._admin.create_topics([_new_topic(topic)])
            case DeleteTopic(name=name):
                await self._admin.delete_topics([name])
            case AddPartitions(name=name, total=total):
                await self._admin.create_partitions({name: total})
            case SetTopicConfig(name=name, key=key, value=value):
                change = ConfigChange(name=key, value=value)
                await self._admin.incremental_alter_configs({ConfigResource.topic(name): [change]})
            case Reassign(name=name, partition=partition, replicas=replicas):
                await self._reassign(name, partition, replicas)
            case CancelReassignment(name=name, partition=partition):
                await self._reassign(name, partition, None)
            case ElectPreferred():
                await self._elect()

    async def _reassign(self, topic: str, partition: int, replicas: tuple[int, ...] | None) -> None:
        target = {"partition_index": partition, "replicas": None if replicas is None else list(replicas)}
        message = {"timeout_ms": _OPERATION_MS, "topics": [{"name": topic, "partitions": [target]}]}
        response = await self._ask_controller(AlterPartitionReassignmentsResponse, message)
        code = response.responses[0].partitions[0].error_code
        if code != NONE:
            raise error_for(code, "refused")

    async def _elect(self) -> None:
        await self._ask_controller(
            ElectLeadersResponse, {"topic_partitions": None, "timeout_ms": _OPERATION_MS, "election_type": 0}
        )

    async def _ask_controller(self, expected: type[_Answer], message: dict[str, object]) -> _Answer:
        async def attempt() -> _Answer:
            response = await self._cluster.ask_controller(expected, message)
            if response.error_code != NONE:
                raise error_for(response.error_code, "refused")
            return response

        return await self._cluster.retrying(attempt, self._cluster.deadline(expected.API_KEY.name))


def _new_topic(topic: TopicPlan) -> NewTopic:
    if topic.assignments:
        return NewTopic(name=topic.name, assignments=topic.assignments, configs=tuple(sorted(topic.configs.items())))
    return NewTopic(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replicas,
        configs=tuple(sorted(topic.configs.items())),
    )
