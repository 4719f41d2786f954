"""Reads all records with librdkafka after the run, and compares them with the acknowledged ones.

Options: bootstrap, topic, partitions, ledgers. Result: the numbers of records read and acknowledged, and a message for
each record that is lost, duplicated, at another offset or out of order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from ordeal.checking import Reading
from ordeal.clients.calling import answer, options
from ordeal.records import read_acks

_AT_ONCE: Final = 10_000
_SILENCE_SECONDS: Final = 60.0


def _read(wanted: dict[str, Any]) -> Reading:
    count: int = wanted["partitions"]
    reading, left = Reading(count), set(range(count))
    consumer = Consumer(
        {
            "bootstrap.servers": wanted["bootstrap"],
            "group.id": "reading-back",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    try:
        consumer.assign([TopicPartition(wanted["topic"], number, OFFSET_BEGINNING) for number in range(count)])
        while left:
            messages = consumer.consume(_AT_ONCE, _SILENCE_SECONDS)
            if not messages:
                raise RuntimeError(
                    f"no record arrived within {_SILENCE_SECONDS:g} s: partitions {sorted(left)} are incomplete"
                )
            for message in messages:
                error, partition, offset = message.error(), message.partition(), message.offset()
                assert partition is not None, "the record is from an assigned partition"
                assert offset is not None, "the record is from an assigned partition"
                if error is None:
                    reading.see(partition, offset, message.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(partition)
                else:
                    raise RuntimeError(str(error))
    finally:
        consumer.close()
    return reading


def main() -> None:
    """Read all records, compare them, and write the result."""
    wanted = options()
    reading = _read(wanted)
    acks = np.concatenate([read_acks(Path(path).read_bytes()) for path in wanted["ledgers"]])
    answer(wanted, {"records": reading.records, "acknowledged": len(acks), "complaints": reading.compare(acks)})


if __name__ == "__main__":
    main()
