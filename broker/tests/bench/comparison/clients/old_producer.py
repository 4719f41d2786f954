"""Writes to a topic like a client of Kafka 0.10: Produce version 2 with record format 1, a few requests in flight.

Options: address, topic, partitions, records, record size, records per request. Figures: records and megabytes per
second.
"""

from __future__ import annotations

import time
from typing import Final

from comparison.batches import filler, message_set
from comparison.clients.calling import answer, options
from comparison.wire import Address, Connection, old_produce_frame, produce_result
from odradek.base.types import TopicPartition

_IN_FLIGHT: Final = 5


def main() -> None:
    """Send all records, wait for all responses, and return the figures."""
    wanted = options()
    messages = message_set(
        filler(wanted["record_bytes"]), wanted["records_per_request"], timestamp_ms=int(time.time() * 1000)
    )
    topic, partitions = wanted["topic"], range(wanted["partitions"])
    frames = [old_produce_frame(TopicPartition(topic, number), messages) for number in partitions]
    requests = wanted["records"] // wanted["records_per_request"]
    with Connection(Address(wanted["host"], wanted["port"])) as connection:
        began = time.perf_counter()
        for number in range(requests + _IN_FLIGHT):
            if number >= _IN_FLIGHT:
                code, _ = produce_result(connection.receive(), topic)
                if code:
                    raise RuntimeError(f"a produce request failed with error {code}")
            if number < requests:
                connection.send(frames[number % len(frames)])
        seconds = time.perf_counter() - began
    records = requests * wanted["records_per_request"]
    size = records * wanted["record_bytes"]
    answer({"records_per_s": records / seconds, "megabytes_per_s": size / seconds / (1 << 20)})


if __name__ == "__main__":
    main()
