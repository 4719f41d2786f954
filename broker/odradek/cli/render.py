"""Converts results of the client library to tables and to plain values for JSON. Pure."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from odradek.base.types import NO_BROKER, ZERO_UUID
from odradek.cli.tables import Column, Table
from odradek.client.admin_kinds import TransactionalIdState
from odradek.client.models import (
    ConfigEntry,
    DelegationTokenDescription,
    HangingTransaction,
    ListedTransaction,
    PartitionDescription,
    PreparedTransaction,
    TopicDescription,
    TransactionDescription,
)

TOPIC_CONFIG = 1
"""The config source in DescribeConfigs of a property that the topic overrides."""


def partition_state(partition: PartitionDescription) -> str:
    """Return `in sync`, the number of replicas behind, or `offline`."""
    if partition.leader == NO_BROKER:
        return "offline"
    behind = len(set(partition.replicas) - set(partition.isr))
    return "in sync" if behind == 0 else f"{behind} behind"


def _numbers(values: Iterable[int]) -> str:
    return ",".join(map(str, values))


def topic_list(topics: Iterable[TopicDescription]) -> Table:
    """Return a table with a row for each topic."""
    rows, marked = [], set()
    for index, topic in enumerate(topics):
        troubled = [part for part in topic.partitions if partition_state(part) != "in sync"]
        if troubled:
            marked.add(index)
        state = f"{len(troubled)} of {len(topic.partitions)} not in sync" if troubled else "in sync"
        factor = len(topic.partitions[0].replicas) if topic.partitions else 0
        rows.append((topic.name, str(len(topic.partitions)), str(factor), state))
    columns = (Column("TOPIC"), Column("PARTITIONS", True), Column("REPLICAS", True), Column("STATE"))
    return Table("", columns, tuple(rows), frozenset(marked), empty="There are no topics.")


def overrides(entries: Iterable[ConfigEntry]) -> dict[str, str]:
    """Return the properties that the topic overrides."""
    return {entry.name: entry.value or "" for entry in entries if entry.source == TOPIC_CONFIG}


def topic_detail(topic: TopicDescription, config: Mapping[str, str]) -> Table:
    """Return a table with a row for each partition. The title has the other properties."""
    rows = tuple(
        (
            str(part.partition),
            "none" if part.leader == NO_BROKER else str(part.leader),
            str(part.leader_epoch),
            _numbers(part.replicas),
            _numbers(part.isr),
            partition_state(part),
        )
        for part in topic.partitions
    )
    title = [f"Topic {topic.name}"]
    if topic.topic_id != ZERO_UUID:
        title.append(f"id {_topic_id(topic)}")
    title.append(f"{len(topic.partitions)} partitions")
    title += [f"{key}={value}" for key, value in sorted(config.items())]
    columns = (
        Column("PARTITION", True),
        Column("LEADER", True),
        Column("EPOCH", True),
        Column("REPLICAS"),
        Column("IN SYNC"),
        Column("STATE"),
    )
    marked = frozenset(index for index, part in enumerate(topic.partitions) if partition_state(part) != "in sync")
    return Table(", ".join(title), columns, rows, marked, empty="The topic has no partitions.")


def only_troubled(topic: TopicDescription) -> TopicDescription:
    """Return the topic with only the partitions that are not in sync."""
    troubled = tuple(part for part in topic.partitions if partition_state(part) != "in sync")
    return replace(topic, partitions=troubled)


def _topic_id(topic: TopicDescription) -> str | None:
    """Return the topic id as Kafka's tools show it; None if the brokers are too old to have one."""
    if topic.topic_id == ZERO_UUID:
        return None
    return base64.urlsafe_b64encode(topic.topic_id.bytes).rstrip(b"=").decode("ascii")


def topic_value(topic: TopicDescription, config: Mapping[str, str] | None = None) -> dict[str, object]:
    """Return a topic for JSON, with its overrides if `config` is given."""
    value: dict[str, object] = {
        "name": topic.name,
        "id": _topic_id(topic),
        "internal": topic.internal,
        "partitions": [
            {
                "partition": part.partition,
                "leader": part.leader,
                "leader_epoch": part.leader_epoch,
                "replicas": list(part.replicas),
                "isr": list(part.isr),
                "offline_replicas": list(part.offline_replicas),
            }
            for part in topic.partitions
        ],
    }
    return value if config is None else {**value, "config": dict(config)}


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
