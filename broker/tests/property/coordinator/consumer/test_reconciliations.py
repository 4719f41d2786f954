"""Several members reconcile in random order while targets change and responses are lost."""

from __future__ import annotations

from random import Random
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator.groups.consumer.consumer_values import ConsumerMember, PartitionSet, ReconciliationState
from odradek.coordinator.groups.consumer.reconciliation import reconcile

TOPICS = {UUID(int=1): 4, UUID(int=2): 3}
MEMBER_IDS = ("a", "b", "c")
STEPS = 60
Partition = tuple[UUID, int]


def pairs(*partition_sets: PartitionSet) -> set[Partition]:
    return {(topic_id, number) for each in partition_sets for topic_id, numbers in each.items() for number in numbers}


def partition_set(partitions: set[Partition]) -> PartitionSet:
    topic_ids = sorted({topic_id for topic_id, _ in partitions})
    return {each: frozenset(number for topic_id, number in partitions if topic_id == each) for each in topic_ids}


class Group:
    """The coordinator's members, and what their clients really read."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.epoch = 0
        self.members = {each: ConsumerMember(member_id=each, rebalance_timeout_ms=1000) for each in MEMBER_IDS}
        self.read: dict[str, set[Partition]] = {each: set() for each in MEMBER_IDS}
        """What each client reads."""
        self.told: dict[str, set[Partition]] = {each: set() for each in MEMBER_IDS}
        """The assignment that each client has got last."""
        self.assign()

    def assign(self) -> None:
        """Give every partition to any member, or to none."""
        self.epoch += 1
        targets: dict[str, set[Partition]] = {each: set() for each in MEMBER_IDS}
        for topic_id, count in TOPICS.items():
            for number in range(count):
                if self.random.random() < 0.9:
                    targets[self.random.choice(MEMBER_IDS)].add((topic_id, number))
        self.targets = {each: partition_set(target) for each, target in targets.items()}

    def is_free_for(self, member_id: str, partition: Partition) -> bool:
        return all(
            partition not in pairs(member.assigned, member.revoking)
            for other_id, member in self.members.items()
            if other_id != member_id
        )

    def heartbeat(self, member_id: str, *, reports: bool, is_lost: bool) -> None:
        """Send a heartbeat, of which the response may be lost.

        A client that still has to take partitions does not report what it has, as the coordinator would believe that it
        has revoked them.
        """
        reports = reports and self.told[member_id] <= self.read[member_id]
        before = self.members[member_id]
        after = reconcile(
            before,
            self.epoch,
            self.targets[member_id],
            partition_set(self.read[member_id]) if reports else None,
            lambda topic_id, number: self.is_free_for(member_id, (topic_id, number)),
        )
        self.members[member_id] = after
        assert before.epoch <= after.epoch <= self.epoch
        assert after.epoch == before.epoch or after.previous_epoch == before.epoch
        assert not pairs(after.assigned) & pairs(after.revoking)
        assert bool(after.revoking) == (after.state is ReconciliationState.UNREVOKED_PARTITIONS)
        if not is_lost:
            self.told[member_id] = pairs(after.assigned)

    def work(self, member_id: str) -> None:
        """Let the client stop reading a partition, or start to read those that it has got."""
        read, told = self.read[member_id], self.told[member_id]
        if read - told:
            read.discard(self.random.choice(sorted(read - told)))
        else:
            read |= told

    def check(self) -> None:
        owned = [pairs(member.assigned, member.revoking) for member in self.members.values()]
        assert sum(map(len, owned)) == len(set().union(*owned))
        for member_id, read in self.read.items():
            assert read <= pairs(self.members[member_id].assigned, self.members[member_id].revoking)


@given(st.integers(0, 1 << 32).map(Random))
def test_no_partition_has_two_owners_and_all_reach_the_target(random: Random) -> None:
    group = Group(random)
    for _ in range(STEPS):
        member_id = random.choice(MEMBER_IDS)
        if random.random() < 0.1:
            group.assign()
        elif random.random() < 0.5:
            group.work(member_id)
        else:
            # A client reports again what it has after it has got no response.
            group.heartbeat(member_id, reports=random.random() < 0.6, is_lost=random.random() < 0.3)
        group.check()
    for _ in range(20):
        for member_id in random.sample(MEMBER_IDS, len(MEMBER_IDS)):
            group.heartbeat(member_id, reports=True, is_lost=False)
            while group.read[member_id] != group.told[member_id]:
                group.work(member_id)
            group.check()
    for member_id, member in group.members.items():
        assert (member.state, member.epoch) == (ReconciliationState.STABLE, group.epoch)
        assert pairs(member.assigned) == pairs(group.targets[member_id]) == group.read[member_id]
