"""A process of the load: a producer that never stops by itself, or a consumer that reads every record once.

Writes a report as a JSON file after SIGTERM. `load` starts it. It is a separate process so that it runs steadily while
a test waits for kubectl. The client library is librdkafka, which shares no code with Odradek.

After SIGTERM a producer ends when every record that it sent is acknowledged or has failed. A consumer ends when it has
read each partition up to the end that the partition had at that moment.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from support.ledger import Report, Seen, Stream, Written

_POLL_SECONDS: Final = 0.05
_CALL_SECONDS: Final = 30.0
_FLUSH_SECONDS: Final = 180.0
_END_SECONDS: Final = 180.0
_TELL_SECONDS: Final = 0.25
_FILLING: Final = b"."


class _Ended:
    """Whether SIGTERM has arrived."""

    def __init__(self) -> None:
        self.come = False
        signal.signal(signal.SIGTERM, self._note)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the test decides when to end

    def _note(self, *_: object) -> None:
        self.come = True


class _Pauses:
    """The longest time without progress, in seconds."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._last = time.monotonic()

    def sign(self) -> None:
        now = time.monotonic()
        self.longest, self._last = max(self.longest, now - self._last), now


class _Progress:
    """A file with the number of records so far. Tests read it to see that a load makes progress."""

    def __init__(self, report: Path) -> None:
        self._file: Final = report.with_suffix(".count")
        self._next = 0.0

    def tell(self, count: int) -> None:
        """Write the count, but not for every record: a test reads it only twice a second."""
        if (now := time.monotonic()) >= self._next:
            self._next = now + _TELL_SECONDS
            part = self._file.with_suffix(".count.part")
            part.write_text(str(count), encoding="ascii")
            part.rename(self._file)


def encode(producer: str, sequence: int, size: int) -> bytes:
    """The value of a record: the producer, the sequence number, and padding up to the size."""
    return f"{producer} {sequence} ".encode().ljust(size, _FILLING)


def decode(value: bytes) -> tuple[str, int]:
    """The producer and the sequence number in a value."""
    producer, sequence, _ = value.split(b" ", 2)
    return producer.decode(), int(sequence)


def login(options: argparse.Namespace) -> dict[str, str]:
    """Return librdkafka's properties for TLS and login."""
    found: dict[str, str] = json.loads(options.login.read_text(encoding="utf-8"))
    return found


def produce(options: argparse.Namespace) -> Report:
    """Send at a steady rate to each partition in turn, whatever happens to the cluster."""
    ended, pauses, progress = _Ended(), _Pauses(), _Progress(options.report)
    written: dict[Stream, Written] = defaultdict(Written)
    producer = Producer(
        {
            **login(options),
            "bootstrap.servers": options.bootstrap,
            "client.id": options.name,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "message.timeout.ms": 0,  # 0 means no timeout: no record expires while the cluster is unreachable
            "retry.backoff.max.ms": 500,
            "reconnect.backoff.max.ms": 1000,
            "topic.metadata.refresh.interval.ms": 5000,
        }
    )
    acknowledged = 0
    started = time.monotonic()

    def outcome(stream: Stream, sequence: int, error: KafkaError | None, _: Message) -> None:
        nonlocal acknowledged
        if error is not None:
            written[stream].failed.add(sequence)
            return
        acknowledged += 1
        pauses.sign()

    sent = 0
    while not ended.come:
        while not ended.come and sent < (time.monotonic() - started) * options.rate:
            stream = (options.name, sent % options.partitions)
            sequence = written[stream].sent
            try:
                producer.produce(
                    options.topic,
                    encode(options.name, sequence, options.size),
                    partition=stream[1],
                    on_delivery=partial(outcome, stream, sequence),
                )
            except BufferError:  # the cluster is unreachable for long: wait until some records are delivered
                break
            written[stream].sent += 1
            sent += 1
        producer.poll(_POLL_SECONDS)
        progress.tell(acknowledged)
    if left := producer.flush(_FLUSH_SECONDS):
        raise SystemExit(f"{left} records have no outcome {_FLUSH_SECONDS:g} s after the end")
    pauses.sign()
    return Report(streams=dict(written), count=acknowledged, longest_pause=pauses.longest)


def consume(options: argparse.Namespace) -> Report:
    """Read every partition from its start, without a group, so that no record is read twice."""
    ended, pauses, progress = _Ended(), _Pauses(), _Progress(options.report)
    seen: dict[Stream, Seen] = defaultdict(Seen)
    consumer = Consumer(
        {
            **login(options),
            "bootstrap.servers": options.bootstrap,
            "client.id": options.name,
            "group.id": options.name,  # librdkafka requires a group; no offset is ever committed for it
            "enable.auto.commit": False,
            "auto.offset.reset": "error",  # an offset out of range would mean that records are lost
            "reconnect.backoff.max.ms": 1000,
            "topic.metadata.refresh.interval.ms": 5000,
        }
    )
    partitions = range(options.partitions)
    consumer.assign([TopicPartition(options.topic, partition, 0) for partition in partitions])
    reached = dict.fromkeys(partitions, 0)
    wanted: dict[int, int] | None = None
    deadline, count = 0.0, 0
    while wanted is None or any(reached[partition] < end for partition, end in wanted.items()):
        if ended.come and wanted is None:
            wanted, deadline = _ends(consumer, options.topic, partitions), time.monotonic() + _END_SECONDS
        if wanted is not None and time.monotonic() > deadline:
            raise SystemExit(f"not at the end {_END_SECONDS:g} s after the end: at {reached} of {wanted}")
        progress.tell(count)
        message = consumer.poll(_POLL_SECONDS)
        if message is None or not _is_record(message):
            continue
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None and offset is not None and value is not None
        producer, sequence = decode(value)
        seen[producer, partition].see(sequence)
        reached[partition] = offset + 1
        count += 1
        pauses.sign()
    consumer.close()
    return Report(streams=dict(seen), count=count, longest_pause=pauses.longest)


def _ends(consumer: Consumer, topic: str, partitions: range) -> dict[int, int]:
    """The end offsets of all partitions. The request is repeated, because a leader may just be moving."""
    deadline = time.monotonic() + _END_SECONDS
    found: dict[int, int] = {}
    while len(found) < len(partitions):
        for partition in partitions:
            try:
                offsets = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_CALL_SECONDS)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                continue
            if offsets is not None:
                found[partition] = offsets[1]
    return found


def _is_record(message: Message) -> bool:
    """Return True for a record, and False for an error from which librdkafka recovers by itself.

    Raises `SystemExit` for a fatal error and for an offset out of range.
    """
    error = message.error()
    if error is None:
        return True
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE) or error.fatal():
        raise SystemExit(f"the consumer cannot go on: {error}")
    return False


def main() -> None:
    """Run a producer or a consumer until SIGTERM and write its report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("produce", "consume"))
    for name in ("bootstrap", "topic", "name"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--login", type=Path, required=True)
    options = parser.parse_args()
    report = produce(options) if options.what == "produce" else consume(options)
    part = options.report.with_suffix(".part")
    part.write_text(json.dumps(report.plain()), encoding="utf-8")
    part.rename(options.report)


if __name__ == "__main__":
    main()
