"""Waits until the cluster has noticed that a broker was down, if the broker may have lost records.

A broker may have lost records in an unclean stop, for example if its machine lost power or its disk was replaced. It
must not register while it is still in an ISR. Otherwise a controller that is elected at that moment never notices that
the broker was offline. The controller may elect it as leader, and the other replicas would be truncated to its log.
This happens whenever the controller's machine fails and restarts before its session expires, because the election and
the registration then happen at the same time. `app/broker` calls this module if its id is not registered. Invariant:
only the partitions for which the broker still has to wait are read.

Kafka registers immediately. Since KIP-966, its KRaft controllers know which brokers were shut down cleanly.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from odradek.base.ports import Clock
from odradek.base.types import TopicPartition
from odradek.zk import layout
from odradek.zk.layout import LayoutError, PartitionState, TopicAssignment
from odradek.zk.port import ZkClient

log = logging.getLogger(__name__)

LOOK_MS: Final = 50.0
"""First pause between two checks, in milliseconds. It doubles each time up to `LOOK_MAX_MS`."""
LOOK_MAX_MS: Final = 1000.0


async def until_out_of_sync(zk: ZkClient, clock: Clock, broker_id: int, *, wait_ms: float) -> bool:
    """Wait up to `wait_ms` until an unregistered broker is in no ISR. Returns False after a timeout.

    An ISR without a registered member is ignored: no other replica can become the leader, and this broker may have to.
    """
    deadline_ms = clock.monotonic_ms() + wait_ms
    rest_ms = LOOK_MS
    left = await _in_sync(zk, broker_id, await _assigned(zk, broker_id))
    while left:
        if clock.monotonic_ms() >= deadline_ms:
            log.warning(
                "broker %d registers although it is still in the ISR of %d partitions: the wait timed out",
                broker_id,
                len(left),
            )
            return False
        log.info(
            "broker %d waits with its registration until it is removed from the ISR of %d partitions",
            broker_id,
            len(left),
        )
        await clock.sleep_ms(rest_ms)
        rest_ms = min(2 * rest_ms, LOOK_MAX_MS)
        left = await _in_sync(zk, broker_id, left)
    return True


async def _assigned(zk: ZkClient, broker_id: int) -> list[TopicPartition]:
    """Return the partitions with a replica on a broker. Topics that are being deleted are ignored, because their ISRs
    do not change."""
    doomed = set(await zk.children_or_none(layout.DELETE_TOPICS) or ())
    names = [name for name in await zk.children_or_none(layout.TOPICS) or () if name not in doomed]
    contents = await zk.get_many(map(layout.topic_path, names))
    found = []
    for name in names:
        content = contents[layout.topic_path(name)]
        if content is None:
            continue
        try:
            partitions = TopicAssignment.decode(name, content[0]).partitions
        except LayoutError as error:
            log.warning("the invalid assignment of %s is ignored: %s", name, error)
            continue
        found += [TopicPartition(name, number) for number, one in partitions.items() if broker_id in one.replicas]
    return found


async def _in_sync(zk: ZkClient, broker_id: int, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions whose ISR contains the broker and another broker that is registered."""
    wanted = list(partitions)
    if not wanted:
        return []
    others = {int(name) for name in await zk.children_or_none(layout.BROKER_IDS) or () if name.isdecimal()}
    others.discard(broker_id)
    found = []
    states = await zk.get_many(map(layout.partition_state_path, wanted))
    for partition in wanted:
        content = states[layout.partition_state_path(partition)]
        if content is None:
            continue
        try:
            isr = PartitionState.decode(partition, content[0]).isr
        except LayoutError as error:
            log.warning("the invalid state of %s is ignored: %s", partition, error)
            continue
        if broker_id in isr and others.intersection(isr):
            found.append(partition)
    return found
