"""Whether the cluster has noticed that a broker was away, before it comes back with less than it had.

A broker that did not stop in order may have lost records: its machine lost power, or its disk was replaced. It must not
register while an in-sync set still names it: a controller that begins to reign at that moment never sees it absent, and
would let it lead, and cut the others to what is left here. This happens whenever the controller's own machine fails and
is back before its session ends, as both then come to one moment. Called by `app/broker` when nobody is registered under
its id. Invariant: asks only for the partitions that still stand in the way.

Kafka registers at once; from KIP-966 on its KRaft controllers know which brokers stopped in order.
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
"""First rest between two looks; each is twice as long as the one before, up to `LOOK_MAX_MS`."""
LOOK_MAX_MS: Final = 1000.0


async def until_out_of_sync(zk: ZkClient, clock: Clock, broker_id: int, *, wait_ms: float) -> bool:
    """Wait until a broker that is not registered is in no in-sync set, at most `wait_ms`; False when time is up.

    A set in which no other member is registered stands in nobody's way: there is nobody who could take it over, and
    this broker may be the one that has to lead.
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
    """The partitions that have a replica on a broker, but for topics that are to be deleted: those stay as they are."""
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
    """Those whose in-sync set has a broker and another one that is registered."""
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
