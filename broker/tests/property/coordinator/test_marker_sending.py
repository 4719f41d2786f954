"""Whatever fails or moves in the meantime, every partition gets its marker and `done` is called exactly once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.errors import (
    AuthenticationError,
    InvalidProducerEpochError,
    KafkaStorageError,
    NetworkError,
    NotEnoughReplicasError,
    RequestTimedOutError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import NO_BROKER, TopicPartition
from odradek.coordinator.transactions.transaction_values import MarkerOutcome
from odradek_testkit.loop import run_virtual
from odradek_testkit.senders.marker_brokers import MarkerBench, ZooKeeperDownError

PARTITIONS = tuple(TopicPartition(topic, number) for topic in ("kept", "deleted") for number in range(3))
FAILURES = (NetworkError, RequestTimedOutError, AuthenticationError, OSError, ValueError)
CODES = (
    UnknownTopicOrPartitionError.code,
    NotEnoughReplicasError.code,
    KafkaStorageError.code,
    UnknownServerError.code,
    InvalidProducerEpochError.code,
)
BROKER = st.integers(0, 2)
PARTITION = st.sampled_from(PARTITIONS)


@dataclass
class Sent:
    """A marker that the test has sent."""

    partitions: tuple[TopicPartition, ...]
    stop: Callable[[], None]
    outcomes_when_stopped: int | None = None


class History:
    """A marker sender and what happens around it."""

    def __init__(self) -> None:
        self.bench = MarkerBench()
        self.sent: dict[int, Sent] = {}
        self.bench.lead(1, *PARTITIONS)

    def send(self, partitions: list[TopicPartition]) -> None:
        producer_id = len(self.sent)
        stop = self.bench.send(producer_id, *partitions)
        assert not self.bench.outcomes[producer_id], "not before send returns"
        self.sent[producer_id] = Sent(tuple(partitions), stop)

    def stop(self, chosen: int) -> None:
        sent = self.sent.get(chosen)
        if sent is not None and sent.outcomes_when_stopped is None:
            sent.stop()
            sent.outcomes_when_stopped = len(self.bench.outcomes[chosen])

    def move(self, partition: TopicPartition, broker_id: int) -> None:
        if partition in self.bench.leaders:
            self.bench.leaders[partition] = broker_id

    def tell(self, partition: TopicPartition, broker_id: int) -> None:
        """Change the metadata, which may be right or wrong."""
        self.bench.brokers.lead({partition: broker_id})

    def delete(self) -> None:
        self.bench.delete("deleted")

    def forget(self, partition: TopicPartition) -> None:
        self.bench.brokers.forget(partition)

    def refuse(self, partition: TopicPartition, code: int) -> None:
        self.bench.codes[partition].append(code)

    def fail(self, broker_id: int, failure: type[Exception]) -> None:
        self.bench.failures[broker_id].append(failure("random"))

    def reach(self, broker_id: int, is_reachable: bool) -> None:
        self.bench.brokers.hang_up(broker_id)
        if is_reachable:
            self.bench.brokers.refusals.pop(broker_id, None)
        else:
            self.bench.brokers.refusals[broker_id] = NetworkError("random")

    def hold(self, broker_id: int, is_held: bool) -> None:
        (self.bench.gates[broker_id].clear if is_held else self.bench.gates[broker_id].set)()

    def announce(self, brokers: set[int]) -> None:
        self.bench.brokers.announce({broker_id: 9000 + broker_id for broker_id in brokers | {0}})

    def zookeeper_fails(self) -> None:
        self.bench.zookeeper_failures.append(ZooKeeperDownError("random"))

    def heal(self) -> None:
        for broker_id in range(3):
            self.hold(broker_id, is_held=False)
            self.reach(broker_id, is_reachable=True)
        self.announce({1, 2})
        self.bench.failures.clear()
        self.bench.codes.clear()
        self.bench.zookeeper_failures.clear()
        for partition in PARTITIONS:
            if partition not in self.bench.leaders:
                self.bench.brokers.forget(partition)
            else:
                self.bench.lead(max(self.bench.leaders[partition], 0), partition)

    def check(self, *, may_be_fenced: bool) -> None:
        for producer_id, sent in self.sent.items():
            outcomes = self.bench.outcomes[producer_id]
            if sent.outcomes_when_stopped is not None:
                assert len(outcomes) == sent.outcomes_when_stopped <= 1
            else:
                assert len(outcomes) == 1
                assert may_be_fenced or outcomes == [MarkerOutcome.WRITTEN]
            if outcomes == [MarkerOutcome.WRITTEN]:
                for partition in sent.partitions:
                    assert producer_id in self.bench.written[partition] or partition not in self.bench.leaders


def step(name: str, **arguments: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[str, dict[str, object]]]:
    return st.tuples(st.just(name), st.fixed_dictionaries(arguments))


SENDING = step("send", partitions=st.lists(PARTITION, unique=True))
STEPS = st.lists(
    st.tuples(
        st.one_of(
            SENDING,
            SENDING,
            SENDING,
            step("stop", chosen=st.integers(0, 10)),
            step("move", partition=PARTITION, broker_id=BROKER),
            step("tell", partition=PARTITION, broker_id=BROKER | st.sampled_from((NO_BROKER, 9))),
            step("delete"),
            step("forget", partition=PARTITION),
            step("refuse", partition=PARTITION, code=st.sampled_from(CODES)),
            step("fail", broker_id=BROKER, failure=st.sampled_from(FAILURES)),
            step("reach", broker_id=BROKER, is_reachable=st.booleans()),
            step("hold", broker_id=BROKER, is_held=st.booleans()),
            step("announce", brokers=st.sets(BROKER)),
            step("zookeeper_fails"),
        ),
        st.sampled_from((0, 1, 30, 700, 40_000)),
    ),
    min_size=10,
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_every_marker_is_written_or_its_partition_is_deleted(
    steps: list[tuple[tuple[str, dict[str, object]], int]],
) -> None:
    async def main() -> None:
        history = History()
        is_fenced = any(arguments.get("code") == InvalidProducerEpochError.code for (_, arguments), _ in steps)
        try:
            for (name, arguments), pause_ms in steps:
                getattr(history, name)(**arguments)
                await history.bench.clock.sleep_ms(pause_ms)
            history.heal()
            await history.bench.clock.sleep_ms(120_000)
            assert not history.bench.sender.pending_count
            history.check(may_be_fenced=is_fenced)
        finally:
            await history.bench.close()

    run_virtual(main())
