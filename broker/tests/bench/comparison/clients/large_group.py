"""A rebalance of one group with many members.

Options: address of the broker, topic, partitions, group, number of members. Figure: the time from the moment at which
the leader joins again, through the heartbeats that tell all members, until every member has its assignment. Members
answer at once, so the time is that of the coordinator and of the network.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from comparison.clients.busy import opened
from comparison.clients.calling import answer, options
from comparison.clients.group_members import (
    REBALANCE_IN_PROGRESS,
    GroupError,
    Member,
    equal_shares,
    heartbeat_code,
    wait_for_coordinator,
)
from comparison.wire import Address
from odradek.base.types import TopicPartition


def assign(members: list[Member], partitions: list[TopicPartition]) -> None:
    """Wait until all members have joined, and distribute the partitions."""
    for member in members:
        member.receive_join()
    for member in members:
        member.send_sync(equal_shares(member.members, partitions) if member.members else {})
    for member in members:
        member.receive_sync()


def rebalance(members: list[Member], topic: str, partitions: list[TopicPartition]) -> float:
    """Rebalance a stable group, and return the seconds that it takes."""
    leader = next(member for member in members if member.member_id == member.leader)
    others = [member for member in members if member is not leader]
    began = time.perf_counter()
    leader.send_join([topic])
    told: list[Member] = []
    while len(told) < len(others):
        waiting = [member for member in others if member.generation >= 0]
        for member in waiting:
            member.connection.send(member.heartbeat_frame())
        for member in waiting:
            code = heartbeat_code(member.connection.receive())
            if code == REBALANCE_IN_PROGRESS:
                member.generation = -1
                told.append(member)
            elif code:
                raise GroupError(f"a heartbeat got the error {code}")
    for member in others:
        member.send_join([topic])
    assign(members, partitions)
    return time.perf_counter() - began


def main() -> None:
    """Let all members join, rebalance once, and return the figure."""
    wanted = options()
    address = Address(wanted["host"], wanted["port"])
    partitions = [TopicPartition(wanted["topic"], number) for number in range(wanted["partitions"])]
    with ExitStack() as closing:
        members = [Member(wanted["group"], closing.enter_context(opened(address))) for _ in range(wanted["members"])]
        wait_for_coordinator(members[0].connection, wanted["group"])
        for member in members:
            member.send_join([wanted["topic"]])
        assign(members, partitions)
        answer({"rebalance_s": rebalance(members, wanted["topic"], partitions)})


if __name__ == "__main__":
    main()
