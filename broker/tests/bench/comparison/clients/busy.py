"""Many connections that produce small batches at the same time, each with a few requests in flight.

Options: address of a broker, topics, number of connections, total number of requests, window, record size, acks.
Figures: acknowledged records and requests per second, the latency of single requests, and the CPU of this client per
request. The connections are spread over the leaders of the partitions. `closed_loop` does the work, so the cost of the
client is small and the same for both systems.
"""

from __future__ import annotations

import gc
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from comparison.batches import batch, filler
from comparison.clients.calling import answer, options
from comparison.clients.closed_loop import ClosedLoop, Cycle, LoadConnection, ResponseLayout
from comparison.figures import latency_figures
from comparison.processes import MEGABYTE
from comparison.wire import Address, Connection
from odradek.base.types import TopicPartition


class Assignment(NamedTuple):
    """The partitions to which one connection produces."""

    broker: Address
    partitions: tuple[TopicPartition, ...]


def assignments(leaders: Mapping[TopicPartition, Address], connections: int) -> list[Assignment]:
    """Assign every partition to connections to its leader.

    `leaders`: partition to the address of its leader. The connections are spread over the brokers, and those of a
    broker over its partitions: with fewer connections than partitions, a connection produces to several in turn. Raises
    `ValueError` if there are fewer connections than brokers.
    """
    led: defaultdict[Address, list[TopicPartition]] = defaultdict(list)
    for partition, address in sorted(leaders.items()):
        led[address].append(partition)
    if connections < len(led):
        raise ValueError(f"{connections} connections do not reach all {len(led)} leaders: use more connections")
    brokers = list(led)
    found = []
    for number in range(connections):
        place, broker = divmod(number, len(brokers))
        own = -(-(connections - broker) // len(brokers))
        partitions = led[brokers[broker]]
        shares = min(own, len(partitions))
        found.append(Assignment(brokers[broker], tuple(partitions[place % shares :: shares])))
    return found


def leaders_of(address: Address, topics: Sequence[str]) -> dict[TopicPartition, Address]:
    """Return the address of the leader of each partition. Raises `RuntimeError` if a partition has none."""
    with Connection(address) as connection:
        metadata = connection.metadata(topics)
    brokers = {broker.node_id: Address(broker.host, broker.port) for broker in metadata.brokers}
    leaders = {
        TopicPartition(topic.name, row.partition_index): row.leader_id
        for topic in metadata.topics
        for row in topic.partitions
    }
    without = [partition for partition, leader in leaders.items() if leader not in brokers]
    if without or not leaders:
        raise RuntimeError(f"{len(without)} of {len(leaders)} partitions of {topics} have no leader")
    return {partition: brokers[leader] for partition, leader in leaders.items()}


def opened(address: Address) -> Connection:
    """Return a connection that the broker has accepted: it has answered a request."""
    connection = Connection(address)
    connection.metadata([])
    return connection


def load_connections(wanted: Mapping[str, Any], plan: Sequence[Assignment], closing: ExitStack) -> list[LoadConnection]:
    """Open all connections. `closing` closes them."""
    records = batch(filler(wanted["record_bytes"]), 1, timestamp_ms=int(time.time() * 1000))
    cycles = {
        each: Cycle(each.partitions, records, window=wanted["window"], acks=wanted["acks"])
        for each in dict.fromkeys(plan)
    }
    with Connection(plan[0].broker) as connection:
        layout = ResponseLayout.learn(connection, cycles[plan[0]])
    budget = wanted["requests"] // len(plan)
    found = []
    for number, each in enumerate(plan):
        socket = closing.enter_context(opened(each.broker)).detach()
        found.append(LoadConnection(f"connection {number}", socket, cycles[each], layout, budget))
    return found


def main() -> None:
    """Open all connections, start them together, and return the figures."""
    wanted = options()
    leaders = leaders_of(Address(wanted["host"], wanted["port"]), wanted["topics"])
    plan = assignments(leaders, wanted["connections"])
    with ExitStack() as closing:
        loop = ClosedLoop(load_connections(wanted, plan, closing))
        gc.collect()
        gc.disable()  # The loop creates no cycles, and a collection would delay the requests that are due.
        cpu = time.process_time()
        seconds = loop.run()
        cpu = time.process_time() - cpu
    milliseconds = loop.milliseconds()
    count = len(milliseconds)
    answer(
        {
            "records": count,
            "megabytes": count * wanted["record_bytes"] / MEGABYTE,
            "requests_per_s": count / seconds,
            "records_per_s": count / seconds,
            "megabytes_per_s": count * wanted["record_bytes"] / seconds / MEGABYTE,
            "client_us": cpu / count * 1e6,
            **latency_figures(milliseconds.tolist()),
        }
    )


if __name__ == "__main__":
    main()
