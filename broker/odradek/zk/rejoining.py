"""Waits until the cluster has noticed that a broker was down, if the broker may have lost records.

After an unclean stop a broker may have lost records: its machine lost power, or its disk was replaced. It must not
register while it is still in an ISR. Otherwise a controller that is elected at that moment never sees it offline, may
elect it as leader, and the other replicas would be truncated to its log. This happens whenever the controller's machine
fails and is back before its session expires, because both then happen together. `app/broker` calls this if its id is
not registered. Invariant: it reads only the partitions for which it still has to wait.

Kafka registers at once; since KIP-966 its KRaft controllers know which brokers were shut down cleanly.
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
"""First pause between two checks. Each pause is twice as long as the previous one, up to `LOOK_MAX_MS`."""
LOOK_MAX_MS: Final = 1000.0


async def until_out_of_sync(zk: ZkClient, clock: Clock, broker_id: int, *, wait_ms: float) -> bool:
    """Wait up to `wait_ms` until an unregistered broker is in no ISR. Returns False on timeout.

    An ISR without any registered member is ignored: no other replica can become leader, and this broker may have to.
    """
    deadline_ms = clock.monotonic_ms() + wait_ms
    rest_ms = LOOK_MS
    left = await _in_sync(zk, broker_id, await _assigned(zk, broker_id))
    while left:
        if clock.monotonic_ms() >= deadline_ms:
            log.warning("broker %d is still in %d in-sync sets, and registers all the same", broker_id, len(left))
            return False
        log.info("broker %d waits until it is out of %d in-sync sets", broker_id, len(left))
        await clock.sleep_ms(rest_ms)
        rest_ms = min(2 * rest_ms, LOOK_MAX_MS)
        left = await _in_sync(zk, broker_id, left)
    return True


async def _assigned(zk: ZkClient, broker_id: int) -> list[TopicPartition]:
    """Return the partitions with a replica on a broker, except those of topics to be deleted, which do not change."""
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
            log.warning("the assignment of %s is passed over: %s", name, error)
            continue
        found += [TopicPartition(name, number) for number, one in partitions.items() if broker_id in one.replicas]
    return found


async def _in_sync(zk: ZkClient, broker_id: int, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return those whose ISR contains the broker and another one that is registered."""
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
            log.warning("the state of %s is passed over: %s", partition, error)
            continue
        if broker_id in isr and others.intersection(isr):
            found.append(partition)
    return found
