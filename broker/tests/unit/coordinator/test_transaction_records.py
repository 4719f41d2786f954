"""Keys and values of `__transaction_state`, compared with hand-written bytes."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from odradek.base.errors import MalformedFrameError
from odradek.base.types import TopicPartition
from odradek.coordinator.transactions.transaction_records import (
    decode_transaction_key,
    decode_transaction_value,
    encode_transaction_key,
    encode_transaction_value,
)
from odradek.coordinator.transactions.transaction_values import Transaction, TransactionState

ONGOING = Transaction(
    producer_id=4000,
    producer_epoch=5,
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    partitions=frozenset({TopicPartition("b", 1), TopicPartition("a", 7), TopicPartition("b", 0)}),
    updated_ms=1_700_000_000_500,
    started_ms=1_700_000_000_000,
)
HEAD = struct.pack(">hqhib", 0, 4000, 5, 60_000, 1)
TIMES = struct.pack(">qq", 1_700_000_000_500, 1_700_000_000_000)
TOPICS = struct.pack(">ih1sii", 2, 1, b"a", 1, 7) + struct.pack(">h1siii", 1, b"b", 2, 0, 1)


def test_keys() -> None:
    assert encode_transaction_key("tx") == b"\x00\x00\x00\x02tx"
    assert decode_transaction_key(b"\x00\x00\x00\x02tx") == "tx"
    assert decode_transaction_key(b"\x00\x01anything") is None
    for broken in (b"\x00", b"\x00\x00\x00\x03tx", b"\x00\x00\x00\x02txx"):
        with pytest.raises(MalformedFrameError):
            decode_transaction_key(broken)


def test_an_open_transaction() -> None:
    assert encode_transaction_value(ONGOING) == HEAD + TOPICS + TIMES
    assert decode_transaction_value(HEAD + TOPICS + TIMES) == ONGOING


def test_the_empty_state_has_null_partitions() -> None:
    empty = Transaction(
        producer_id=1, producer_epoch=0, timeout_ms=1, state=TransactionState.EMPTY, updated_ms=5, started_ms=-1
    )
    data = struct.pack(">hqhibiqq", 0, 1, 0, 1, 0, -1, 5, -1)
    assert encode_transaction_value(empty) == data
    assert decode_transaction_value(data) == empty


@pytest.mark.parametrize("state", TransactionState)
@pytest.mark.parametrize("version", [0, 1])
def test_every_state_and_version(state: TransactionState, version: int) -> None:
    partitions = frozenset() if state is TransactionState.EMPTY else ONGOING.partitions
    value = Transaction(
        producer_id=2**40, producer_epoch=32767, timeout_ms=9, state=state, partitions=partitions, updated_ms=1
    )
    assert decode_transaction_value(encode_transaction_value(value, version)) == value


def test_tagged_fields_of_version_1() -> None:
    data = encode_transaction_value(ONGOING, 1)
    tagged = b"\x03\x00\x08" + struct.pack(">q", 77) + b"\x01\x08" + struct.pack(">q", 78)
    tagged += b"\x02\x02" + struct.pack(">h", 2)
    value = replace(ONGOING, last_producer_id=77, next_producer_id=78, client_version=2)
    assert encode_transaction_value(value, 1) == data[:-1] + tagged
    assert decode_transaction_value(data[:-1] + tagged) == value
    assert encode_transaction_value(value) == HEAD + TOPICS + TIMES, "version 0 has no tagged fields"


def test_unknown_tagged_fields_are_skipped() -> None:
    data = encode_transaction_value(ONGOING, 1)
    assert decode_transaction_value(data[:-1] + b"\x01\x09\x03abc") == ONGOING
    for broken in (b"\x01\x02\x03abc", b"\x01\x09\x04abc", b"\x02\x09\x03abc"):
        with pytest.raises(MalformedFrameError):
            decode_transaction_value(data[:-1] + broken)


@pytest.mark.parametrize(("epoch", "before"), [(5, 4), (0, 32766)])
@pytest.mark.parametrize("state", [TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_COMMIT])
def test_the_epoch_before_an_end_is_known_after_a_load(state: TransactionState, epoch: int, before: int) -> None:
    value = replace(ONGOING, state=state, producer_epoch=epoch, client_version=2)
    assert decode_transaction_value(encode_transaction_value(value, 1)).last_producer_epoch == before
    older = replace(value, client_version=0)
    assert decode_transaction_value(encode_transaction_value(older, 1)).last_producer_epoch == -1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\x02" + HEAD[2:] + TOPICS + TIMES,
        HEAD[:-1] + b"\x08" + TOPICS + TIMES,
        HEAD + TOPICS + TIMES[:-1],
        HEAD + TOPICS + TIMES + b"\x00",
        HEAD + struct.pack(">i", 2**31 - 1) + TIMES,
        HEAD + struct.pack(">ih1si", 1, 1, b"a", 2**31 - 1) + TIMES,
    ],
)
def test_broken_values(data: bytes) -> None:
    with pytest.raises(MalformedFrameError):
        decode_transaction_value(data)
