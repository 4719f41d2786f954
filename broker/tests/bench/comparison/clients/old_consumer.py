"""Reads a topic from its beginning like a client of Kafka 0.10: Fetch version 3 with record format 1.

Options: address, topic, partitions, records. Figures: records and megabytes per second. It uses one connection, and one
request at a time for all partitions. It counts messages and checks that no offset is missing, without decoding them.
"""

from __future__ import annotations

import time
from typing import Final

from comparison.batches import count_messages
from comparison.clients.calling import answer, options
from comparison.wire import Address, Connection, old_fetch_frame, old_fetched

_PARTITION_BYTES: Final = 1 << 20


def main() -> None:
    """Fetch all records and return the figures."""
    wanted = options()
    following = dict.fromkeys(range(wanted["partitions"]), 0)
    records = size = 0
    with Connection(Address(wanted["host"], wanted["port"])) as connection:
        began = time.perf_counter()
        while records < wanted["records"]:
            frame = old_fetch_frame(wanted["topic"], following.items(), partition_bytes=_PARTITION_BYTES)
            before = records
            for partition, code, _, fetched in old_fetched(connection.call(frame)):
                if code:
                    raise RuntimeError(f"a fetch of partition {partition} failed with error {code}")
                count, after = count_messages(fetched)
                if count:
                    if after - count != following[partition]:
                        start = following[partition]
                        raise RuntimeError(
                            f"partition {partition}: {count} messages from offset {start} end at {after}"
                        )
                    following[partition] = after
                records += count
                size += len(fetched)
            if records == before:
                raise RuntimeError(f"a fetch returned no records after {records} of {wanted['records']}")
        seconds = time.perf_counter() - began
    answer({"records_per_s": records / seconds, "megabytes_per_s": size / seconds / (1 << 20)})


if __name__ == "__main__":
    main()
