"""Converts delegation tokens and transactions to tables and to plain values for JSON. Pure."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import UTC, datetime

from odradek.cli.tables import Column, Table
from odradek.client.admin_kinds import TransactionalIdState
from odradek.client.models import (
    DelegationTokenDescription,
    HangingTransaction,
    ListedTransaction,
    PreparedTransaction,
    TransactionDescription,
)


def _numbers(values: Iterable[int]) -> str:
    return ",".join(map(str, values))


def time_text(timestamp: int) -> str:
    """Return a time in milliseconds since 1970 as text in UTC."""
    return datetime.fromtimestamp(timestamp / 1000, UTC).isoformat(sep=" ", timespec="seconds")


def token_list(tokens: Iterable[DelegationTokenDescription], *, with_hmac: bool) -> Table:
    """Return a table with a row for each token; the HMACs only with `with_hmac`."""
    rows = tuple(
        (
            token.token_id,
            *((_hmac(token),) if with_hmac else ()),
            token.owner,
            token.requester,
            ",".join(token.renewers) or "none",
            *map(time_text, (token.issue_timestamp, token.expiry_timestamp, token.max_timestamp)),
        )
        for token in tokens
    )
    secret = ("HMAC",) if with_hmac else ()
    names = ("TOKEN", *secret, "OWNER", "REQUESTER", "RENEWERS", "ISSUED", "EXPIRES", "MAXIMUM")
    return Table("", tuple(map(Column, names)), rows, empty="There are no delegation tokens that you may see.")


def token_value(token: DelegationTokenDescription, *, with_hmac: bool) -> dict[str, object]:
    """Return a token for JSON; its HMAC, in base64, only with `with_hmac`."""
    return {
        "token_id": token.token_id,
        **({"hmac": _hmac(token)} if with_hmac else {}),
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issue_timestamp": token.issue_timestamp,
        "expiry_timestamp": token.expiry_timestamp,
        "max_timestamp": token.max_timestamp,
    }


def _hmac(token: DelegationTokenDescription) -> str:
    return base64.b64encode(token.hmac).decode("ascii")


def _time_or_dash(timestamp: int) -> str:
    return "-" if timestamp < 0 else time_text(timestamp)


def transaction_list(transactions: Iterable[ListedTransaction]) -> Table:
    """Return a table with a row for each transactional id."""
    rows = tuple((row.transactional_id, row.state, str(row.producer_id), str(row.coordinator)) for row in transactions)
    columns = (Column("TRANSACTIONAL ID"), Column("STATE"), Column("PRODUCER", True), Column("COORDINATOR", True))
    return Table("", columns, rows, empty="There are no such transactions.")


def with_prepared(
    listed: Iterable[ListedTransaction], prepared: Iterable[PreparedTransaction | None], states: Collection[str]
) -> list[ListedTransaction]:
    """Return a list in which prepared transactions have that state, restricted to some states (empty: all)."""
    names = {each.transactional_id for each in prepared if each is not None}
    ongoing, shown = TransactionalIdState.ONGOING, TransactionalIdState.PREPARED
    rows = [
        replace(row, state=shown) if row.state == ongoing and row.transactional_id in names else row for row in listed
    ]
    return [row for row in rows if not states or row.state in states]


def _state(row: TransactionDescription) -> str:
    return row.state if row.prepared is None else TransactionalIdState.PREPARED


def listed_transaction_value(row: ListedTransaction) -> dict[str, object]:
    """Return a transactional id in a list for JSON."""
    return {
        "transactional_id": row.transactional_id,
        "state": row.state,
        "producer_id": row.producer_id,
        "coordinator": row.coordinator,
    }


def transaction_detail(row: TransactionDescription) -> Table:
    """Return a table with a row for each topic of the transaction. The title has the other properties."""
    title = [
        f"Transactional id {row.transactional_id}",
        _state(row),
        f"producer {row.producer_id} epoch {row.producer_epoch}",
        f"coordinator {row.coordinator}",
        "no timeout" if row.prepared else f"timeout {row.timeout_ms} ms",
    ]
    if row.start_timestamp >= 0:
        title.append(f"since {time_text(row.start_timestamp)}")
    topics: dict[str, list[int]] = {}
    for topic, partition in row.partitions:
        topics.setdefault(topic, []).append(partition)
    rows = tuple((topic, _numbers(numbers)) for topic, numbers in topics.items())
    columns = (Column("TOPIC"), Column("PARTITIONS"))
    return Table(", ".join(title), columns, rows, empty="No partition is in a transaction.")


def transaction_value(row: TransactionDescription) -> dict[str, object]:
    """Return a transactional id for JSON."""
    return {
        "transactional_id": row.transactional_id,
        "state": _state(row),
        "coordinator": row.coordinator,
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
        "timeout_ms": row.timeout_ms,
        "start_timestamp": row.start_timestamp,
        "partitions": [{"topic": topic, "partition": partition} for topic, partition in row.partitions],
    }


def hanging_list(found: Iterable[HangingTransaction]) -> Table:
    """Return a table with a row for each transaction that hangs."""
    rows = tuple(
        (
            row.topic_partition.topic,
            str(row.topic_partition.partition),
            str(row.producer.transaction_start_offset),
            str(row.producer.producer_id),
            str(row.producer.producer_epoch),
            _time_or_dash(row.producer.last_timestamp),
            row.transactional_id or "-",
        )
        for row in found
    )
    columns = (
        Column("TOPIC"),
        Column("PARTITION", True),
        Column("START OFFSET", True),
        Column("PRODUCER", True),
        Column("EPOCH", True),
        Column("LAST BATCH"),
        Column("TRANSACTIONAL ID"),
    )
    return Table("", columns, rows, frozenset(range(len(rows))), empty="No transaction hangs.")


def hanging_value(row: HangingTransaction) -> dict[str, object]:
    """Return a transaction that hangs for JSON."""
    return {
        "topic": row.topic_partition.topic,
        "partition": row.topic_partition.partition,
        "start_offset": row.producer.transaction_start_offset,
        "producer_id": row.producer.producer_id,
        "producer_epoch": row.producer.producer_epoch,
        "coordinator_epoch": row.producer.coordinator_epoch,
        "last_timestamp": row.producer.last_timestamp,
        "transactional_id": row.transactional_id,
    }
