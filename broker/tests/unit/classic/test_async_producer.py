"""The queue of the asynchronous producer, and what users plug in."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from odradek.base.errors import ConfigError
from odradek.classic import CallbackHandler, HashPartitioner, ProducerConfig, ProducerData, QueueFullError
from odradek.classic.classic_producer import AsyncProducer
from odradek.classic.producer_plugins import DefaultEncoder, StringEncoder, java_hash_of, load_plugin

FOREVER_MS = "3600000"


class Handler:
    """Keeps the batches. It can be made to wait, or to fail."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.arrived = threading.Semaphore(0)
        self.fails = False
        self.is_closed = False

    def handle(self, events: Sequence[ProducerData]) -> None:
        self.arrived.release()
        assert self.may_go_on.wait(30)
        if self.fails:
            raise ValueError("a bug")
        self.batches.append([event.topic for event in events])

    def close(self) -> None:
        self.is_closed = True


def config(**settings: str) -> ProducerConfig:
    names = {"producer.type": "async", "broker.list": "h:1", "queue.time": FOREVER_MS}
    return ProducerConfig.parse({**names, **{name.replace("_", "."): value for name, value in settings.items()}})


def test_a_batch_is_sent_when_it_is_full_and_the_rest_at_the_end() -> None:
    handler = Handler()
    producer = AsyncProducer(config(batch_size="3"), handler, CallbackHandler())
    for name in "abcd":
        producer.send(ProducerData(name))
    producer.close()
    producer.close()
    assert handler.batches == [["a", "b", "c"], ["d"]]
    assert handler.is_closed
    with pytest.raises(ConfigError, match="closed"):
        producer.send(ProducerData("e"))


def test_a_batch_is_sent_after_the_queue_time() -> None:
    handler = Handler()
    producer = AsyncProducer(config(queue_time="1"), handler, CallbackHandler())
    producer.send(ProducerData("a"))
    assert handler.arrived.acquire(timeout=30)
    producer.close()
    assert handler.batches == [["a"]]


def test_a_full_queue_refuses_messages() -> None:
    handler = Handler()
    handler.may_go_on.clear()
    settings = {"queue_size": "1", "batch_size": "1", "queue_enqueueTimeout_ms": "0"}
    producer = AsyncProducer(config(**settings), handler, CallbackHandler())
    producer.send(ProducerData("a"))
    assert handler.arrived.acquire(timeout=30)
    producer.send(ProducerData("b"))
    with pytest.raises(QueueFullError, match=r"queue\.size=1 "):
        producer.send(ProducerData("c"))
    handler.may_go_on.set()
    producer.close()
    assert handler.batches == [["a"], ["b"]]


def test_an_error_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    handler = Handler()
    handler.fails = True
    producer = AsyncProducer(config(batch_size="1"), handler, CallbackHandler())
    producer.send(ProducerData("a"))
    assert handler.arrived.acquire(timeout=30)
    producer.send(ProducerData("b"))
    assert handler.arrived.acquire(timeout=30)
    producer.close()
    assert caplog.text.count("were not all sent") == 2


class Callbacks(CallbackHandler):
    """Changes what passes the queue, and keeps what it is called with."""

    def __init__(self) -> None:
        self.added: list[bool] = []

    def before_enqueue(self, data: ProducerData) -> ProducerData:
        return ProducerData(data.topic + "1")

    def after_enqueue(self, data: ProducerData, added: bool) -> None:
        self.added.append(added)

    def after_dequeuing_existing_data(self, data: ProducerData | None) -> list[ProducerData]:
        if data is not None and data.topic == "bad1":
            raise ValueError("a bug")
        return [] if data is None else [data, data]

    def before_sending_data(self, data: Sequence[ProducerData]) -> Sequence[ProducerData]:
        return [ProducerData(each.topic + "2") for each in data]

    def last_batch_before_close(self) -> Sequence[ProducerData]:
        return [ProducerData("last")]


def test_callbacks_are_called_at_each_step() -> None:
    handler, callbacks = Handler(), Callbacks()
    producer = AsyncProducer(config(), handler, callbacks)
    for name in ("a", "bad", "b"):
        producer.send(ProducerData(name))
    producer.close()
    assert handler.batches == [["a12", "a12", "b12", "b12", "last2"]]
    assert callbacks.added == [True, True, True]


def test_keys_are_hashed_as_in_java() -> None:
    # "polygenelubricants".hashCode() is the lowest int; Arrays.hashCode of {1, -1} and of {} are 991 and 1.
    assert java_hash_of("polygenelubricants") == -(1 << 31)
    assert java_hash_of(b"\x01\xff") == 31 * (31 + 1) - 1
    assert java_hash_of(b"") == 1
    assert java_hash_of(-5) == -5
    assert java_hash_of(1 << 32) == 1
    with pytest.raises(TypeError, match=r"partitioner\.class"):
        java_hash_of(1.5)
    partitioner = HashPartitioner()
    assert partitioner.partition("polygenelubricants", 7) == 0
    assert {partitioner.partition(None, 3) for _ in range(200)} == {0, 1, 2}


def test_encoders() -> None:
    assert DefaultEncoder().to_message(b"x") == b"x"
    assert DefaultEncoder().to_message(None) is None
    with pytest.raises(TypeError, match=r"serializer\.class"):
        DefaultEncoder().to_message("x")
    assert StringEncoder().to_message("ü") == "ü".encode()
    assert isinstance(load_plugin("serializer.class", "odradek.classic:StringEncoder"), StringEncoder)
    for name in ("odradek.classic", "odradek.classic:Missing", "missing.module:X"):
        with pytest.raises(ConfigError, match=r"serializer\.class"):
            load_plugin("serializer.class", name)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({}, "either broker.list or zk.connect"),
        ({"broker.list": "h:1", "zk.connect": "h:2"}, "not both"),
        ({"broker.list": "h:1", "producer.type": "fast"}, r"producer\.type"),
        ({"broker.list": "h:1", "batch.sise": "1"}, r"did you mean batch\.size\?"),
    ],
)
def test_mistakes_are_refused(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ProducerConfig.parse(properties)


def test_names_of_kafka_0_8_are_understood() -> None:
    parsed = ProducerConfig.parse({"metadata.broker.list": "0:h:1,h:2", "request.required.acks": "-1"})
    assert parsed.addresses == ("h:1", "h:2")
    assert parsed.acks == "-1"
    assert ProducerConfig.parse({"zookeeper.connect": "h:1", "compression.codec": "2"}).compression_type == "snappy"
