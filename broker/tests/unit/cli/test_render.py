"""Tables and JSON values of tokens and transactions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.base.types import TopicPartition
from odradek.cli import render
from odradek.cli.tables import Column, Table, show
from odradek.client.models import (
    DelegationTokenDescription,
    HangingTransaction,
    ListedTransaction,
    ProducerDescription,
    TransactionDescription,
)


def at(partition: int) -> TopicPartition:
    return TopicPartition("orders", partition)


def test_in_a_pipe_text_is_not_cut_off_and_names_are_not_markup(capsys: pytest.CaptureFixture[str]) -> None:
    name = "[red]" + "x" * 300
    show([Table("Title", (Column("NAME"), Column("COUNT", True)), ((name, "1"), ("b", "22")), frozenset({0}))])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Title"
    assert lines[3].split() == [name, "1"]
    assert lines[4].split() == ["b", "22"]
    assert "\x1b" not in "".join(lines)


def test_an_empty_table_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    show([Table("", (Column("NAME"),), (), empty="There are none.")])
    assert capsys.readouterr().out == "There are none.\n"


TOKEN = DelegationTokenDescription(
    token_id="id",
    hmac=b"\0\1\2",
    owner="User:alice",
    requester="User:carol",
    renewers=("User:bob", "User:dave"),
    issue_timestamp=0,
    expiry_timestamp=1_700_000_000_999,
    max_timestamp=1_700_000_001_000,
)


def test_tokens_with_and_without_their_secret() -> None:
    times = ("1970-01-01 00:00:00+00:00", "2023-11-14 22:13:20+00:00", "2023-11-14 22:13:21+00:00")
    table = render.token_list([TOKEN, replace(TOKEN, renewers=())], with_hmac=False)
    assert [column.heading for column in table.columns] == [
        "TOKEN",
        "OWNER",
        "REQUESTER",
        "RENEWERS",
        "ISSUED",
        "EXPIRES",
        "MAXIMUM",
    ]
    assert table.rows == (
        ("id", "User:alice", "User:carol", "User:bob,User:dave", *times),
        ("id", "User:alice", "User:carol", "none", *times),
    )
    secret = render.token_list([TOKEN], with_hmac=True)
    assert (secret.columns[1].heading, secret.rows[0][1]) == ("HMAC", "AAEC")
    value = render.token_value(TOKEN, with_hmac=False)
    assert value == {
        "token_id": "id",
        "owner": "User:alice",
        "requester": "User:carol",
        "renewers": ["User:bob", "User:dave"],
        "issue_timestamp": 0,
        "expiry_timestamp": 1_700_000_000_999,
        "max_timestamp": 1_700_000_001_000,
    }
    assert render.token_value(TOKEN, with_hmac=True) == {**value, "hmac": "AAEC"}


LISTED = ListedTransaction(transactional_id="billing", state="Ongoing", producer_id=7, coordinator=2)
TRANSACTION = TransactionDescription(
    transactional_id="billing",
    state="Ongoing",
    coordinator=2,
    producer_id=7,
    producer_epoch=3,
    timeout_ms=60_000,
    start_timestamp=1_700_000_000_000,
    partitions=(at(0), at(2), TopicPartition("other", 1)),
)
HANGING = HangingTransaction(
    topic_partition=at(3),
    producer=ProducerDescription(
        producer_id=7,
        producer_epoch=3,
        last_sequence=9,
        last_timestamp=1_700_000_000_000,
        coordinator_epoch=4,
        transaction_start_offset=1042,
    ),
)


def test_a_list_of_transactions() -> None:
    assert render.transaction_list([LISTED]).rows == (("billing", "Ongoing", "7", "2"),)
    assert render.listed_transaction_value(LISTED) == {
        "transactional_id": "billing",
        "state": "Ongoing",
        "producer_id": 7,
        "coordinator": 2,
    }


def test_a_transaction_in_detail() -> None:
    table = render.transaction_detail(TRANSACTION)
    assert table.title == (
        "Transactional id billing, Ongoing, producer 7 epoch 3, coordinator 2, timeout 60000 ms,"
        " since 2023-11-14 22:13:20+00:00"
    )
    assert table.rows == (("orders", "0,2"), ("other", "1"))
    idle = render.transaction_detail(replace(TRANSACTION, state="Empty", start_timestamp=-1, partitions=()))
    assert (idle.title[-16:], idle.rows) == ("timeout 60000 ms", ())
    assert render.transaction_value(TRANSACTION) == {
        "transactional_id": "billing",
        "state": "Ongoing",
        "coordinator": 2,
        "producer_id": 7,
        "producer_epoch": 3,
        "timeout_ms": 60_000,
        "start_timestamp": 1_700_000_000_000,
        "partitions": [
            {"topic": "orders", "partition": 0},
            {"topic": "orders", "partition": 2},
            {"topic": "other", "partition": 1},
        ],
    }


def test_a_prepared_transaction() -> None:
    prepared = replace(TRANSACTION, timeout_ms=2**31 - 1)
    assert (
        ", Prepared, producer 7 epoch 3, coordinator 2, no timeout, since" in render.transaction_detail(prepared).title
    )
    assert render.transaction_value(prepared)["state"] == "Prepared"
    other, ended = replace(LISTED, transactional_id="other"), replace(LISTED, state="CompleteCommit")

    def shown(*states: str) -> list[tuple[str, str]]:
        rows = render.with_prepared([LISTED, other, ended], [prepared.prepared, None], states)
        return [(row.transactional_id, row.state) for row in rows]

    all_rows = [("billing", "Prepared"), ("other", "Ongoing"), ("billing", "CompleteCommit")]
    assert shown() == all_rows
    assert shown("Prepared") == all_rows[:1]
    assert shown("Ongoing", "CompleteCommit") == all_rows[1:]


def test_transactions_that_hang() -> None:
    known = replace(HANGING, transactional_id="billing", producer=replace(HANGING.producer, last_timestamp=-1))
    assert render.hanging_list([HANGING, known]).rows == (
        ("orders", "3", "1042", "7", "3", "2023-11-14 22:13:20+00:00", "-"),
        ("orders", "3", "1042", "7", "3", "-", "billing"),
    )
    assert render.hanging_value(HANGING) == {
        "topic": "orders",
        "partition": 3,
        "start_offset": 1042,
        "producer_id": 7,
        "producer_epoch": 3,
        "coordinator_epoch": 4,
        "last_timestamp": 1_700_000_000_000,
        "transactional_id": None,
    }
