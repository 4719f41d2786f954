"""Counts the results of appends by producers (`server/data/produce_and_fetch`) and coordinators
(`app/coordinator_log`)."""

from __future__ import annotations

from odradek.base.errors import MessageTooLargeError
from odradek.base.types import NO_OFFSET
from odradek.metrics.topics import BrokerTopicStats
from odradek.replication.requests import AppendResult


def count_append(topics: BrokerTopicStats, result: AppendResult) -> None:
    """Count the append to one partition: the attempt, and what was written or why it was rejected.

    Records are counted when they are in the leader's log, even if the ISR does not acknowledge them in time.
    """
    stats = topics.of(result.topic_partition.topic)
    stats.total_produce += 1
    if result.first_offset != NO_OFFSET:
        stats.messages_in += result.record_count
        stats.bytes_in += result.size_bytes
    if result.error_code:
        stats.failed_produce += 1
        if result.error_code == MessageTooLargeError.code:
            stats.bytes_rejected += result.size_bytes
        stats.count_fault(result.fault)
