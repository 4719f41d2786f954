"""Our assignors and our reconciliation do what the classes of Apache Kafka 4.1 do.

Kafka's uniform assignor depends on the order of a hash map. So balance and moves are compared, not the assignment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final
from uuid import UUID

import pytest

from odradek.coordinator.groups.consumer.consumer_assignors import ASSIGNORS, Subscriber
from odradek.coordinator.groups.consumer.consumer_values import (
    ConsumerMember,
    PartitionSet,
    ReconciliationState,
    TopicShape,
)
from odradek.coordinator.groups.consumer.reconciliation import reconcile
from odradek_testkit.interop.apache import QUICK_START, compile_java, jars, run_tool

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

VERSION: Final = "4.1.0"
SOURCE: Final = Path(__file__).parents[1] / "java" / "GroupAssignments.java"
GROUPS: Final = 400
RECONCILIATIONS: Final = 5000

Assignment = Mapping[str, PartitionSet]


@dataclass(frozen=True)
class Java:
    """The compiled program."""

    folder: Path
    classes: Path

    def answers(self, lines: Sequence[str]) -> list[str]:
        stdin = "\n".join(lines) + "\n"
        output = run_tool(self.folder, "GroupAssignments", [], stdin=stdin, options=QUICK_START, classes=self.classes)
        answers = output.splitlines()
        assert len(answers) == len(lines)
        return answers


@pytest.fixture(scope="module")
def java(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Java:
    folder = jars(VERSION, Path(pytestconfig.rootpath) / ".interop")
    classes = tmp_path_factory.mktemp("classes")
    compile_java(folder, [SOURCE], classes)
    return Java(folder, classes)


def text(partitions: PartitionSet) -> str:
    listed = [f"{topic_id.int}:{number}" for topic_id in sorted(partitions) for number in sorted(partitions[topic_id])]
    return ",".join(listed) or "-"


def parsed(text_of_partitions: str) -> PartitionSet:
    found: dict[UUID, frozenset[int]] = {}
    for each in text_of_partitions.split(",") if text_of_partitions != "-" else ():
        topic, number = map(int, each.split(":"))
        found[UUID(int=topic)] = found.get(UUID(int=topic), frozenset()) | {number}
    return found


# Assignors


@dataclass(frozen=True)
class Case:
    """The input of an assignor. No current partition is beyond a topic, as Kafka does not expect that."""

    topics: Mapping[UUID, TopicShape]
    members: Mapping[str, Subscriber]

    def line(self, name: str) -> str:
        counts = ",".join(f"{topic_id.int}={shape.partition_count}" for topic_id, shape in self.topics.items())
        members = [
            "/".join(
                (
                    member_id,
                    member.instance_id or "-",
                    ",".join(str(each.int) for each in member.topics) or "-",
                    text(member.current),
                )
            )
            for member_id, member in self.members.items()
        ]
        return f"assign {name} {counts} {' '.join(members)}"

    def sizes(self, assignment: Assignment) -> list[int]:
        return sorted(sum(map(len, assignment.get(each, {}).values())) for each in self.members)

    def moves(self, assignment: Assignment) -> int:
        """Return how many current partitions of subscribed topics do not stay where they are."""
        return sum(
            len(numbers - assignment.get(member_id, {}).get(topic_id, frozenset()))
            for member_id, member in self.members.items()
            for topic_id, numbers in member.current.items()
            if topic_id in member.topics
        )


def random_case(random: Random, *, equal: bool) -> Case:
    largest = random.choice([3, 20, 60])
    topics = {
        UUID(int=number): TopicShape(UUID(int=number), f"t-{number}", random.randint(1, largest))
        for number in range(1, random.randint(2, 8))
    }
    member_ids = [f"m-{number}" for number in random.sample(range(40), random.randint(1, 25))]
    share = random.random()
    current: dict[str, dict[UUID, frozenset[int]]] = {each: {} for each in [*member_ids, "gone"]}
    favourites = random.sample(list(current), random.randint(1, len(current)))
    if random.random() < 0.8:
        for topic_id, shape in topics.items():
            for number in range(shape.partition_count):
                had = current[random.choice(favourites)]
                had[topic_id] = had.get(topic_id, frozenset()) | {number}
    members = {
        each: Subscriber(
            topics=frozenset(topics) if equal else frozenset(topic for topic in topics if random.random() < share),
            instance_id=f"i-{random.randrange(1000)}-{each}" if random.random() < 0.3 else None,
            current=current[each],
        )
        for each in member_ids
    }
    return Case(topics, members)


def both(java: Java, name: str, cases: Sequence[Case]) -> Iterator[tuple[Case, Assignment, Assignment]]:
    """Yield each case with our assignment and with that of Kafka."""
    for case, answer in zip(cases, java.answers([case.line(name) for case in cases]), strict=True):
        theirs = {each.partition("/")[0]: parsed(each.partition("/")[2]) for each in answer.split()}
        yield case, ASSIGNORS[name](case.members, case.topics), theirs


@pytest.mark.parametrize("equal", [True, False])
def test_ranges_are_those_of_kafka(java: Java, equal: bool) -> None:
    random = Random(1)
    for case, ours, theirs in both(java, "range", [random_case(random, equal=equal) for _ in range(GROUPS)]):
        assert {each: part for each, part in ours.items() if part} == {
            each: part for each, part in theirs.items() if part
        }, case


def test_equal_subscriptions_are_balanced_like_kafka_with_at_most_as_many_moves(java: Java) -> None:
    random = Random(2)
    for case, ours, theirs in both(java, "uniform", [random_case(random, equal=True) for _ in range(GROUPS)]):
        assert case.sizes(ours) == case.sizes(theirs)
        assert case.moves(ours) <= case.moves(theirs)


def test_mixed_subscriptions_are_balanced_like_kafka_with_about_as_many_moves(java: Java) -> None:
    random = Random(3)
    our_moves = their_moves = our_squares = their_squares = 0
    for case, ours, theirs in both(java, "uniform", [random_case(random, equal=False) for _ in range(GROUPS)]):
        assert sum(case.sizes(ours)) == sum(case.sizes(theirs))
        our_moves += case.moves(ours)
        their_moves += case.moves(theirs)
        our_squares += sum(size**2 for size in case.sizes(ours))
        their_squares += sum(size**2 for size in case.sizes(theirs))
    # They choose differently among equal members, so single cases can be a little better or worse.
    assert our_moves <= their_moves * 1.01
    assert our_squares <= their_squares * 1.001


# Reconciliation


@dataclass(frozen=True)
class Step:
    """The input of a reconciliation."""

    member: ConsumerMember
    target_epoch: int
    target: PartitionSet
    owned: PartitionSet | None
    taken: PartitionSet

    def line(self) -> str:
        member = self.member
        state = f"{member.state.value} {member.epoch} {text(member.assigned)} {text(member.revoking)}"
        owned = "none" if self.owned is None else text(self.owned)
        return f"reconcile {state} {self.target_epoch} {text(self.target)} {owned} {text(self.taken)}"

    def answer(self) -> str:
        after = reconcile(
            self.member,
            self.target_epoch,
            self.target,
            self.owned,
            lambda topic_id, number: number not in self.taken.get(topic_id, ()),
        )
        return f"{after.state.value} {after.epoch} {text(after.assigned)} {text(after.revoking)}"


def random_partitions(random: Random, *others: PartitionSet) -> PartitionSet:
    """Return some partitions that are not among others."""
    excluded = {(topic_id, number) for each in others for topic_id, numbers in each.items() for number in numbers}
    found: dict[UUID, frozenset[int]] = {}
    for topic in (1, 2):
        numbers = frozenset(n for n in range(4) if random.random() < 0.4 and (UUID(int=topic), n) not in excluded)
        if numbers:
            found[UUID(int=topic)] = numbers
    return found


def random_step(random: Random) -> Step:
    state = random.choice(list(ReconciliationState))
    assigned = random_partitions(random)
    is_revoking = state is ReconciliationState.UNREVOKED_PARTITIONS
    revoking = random_partitions(random, assigned) if is_revoking else {}
    epoch = random.randrange(1, 4)
    member = ConsumerMember(
        member_id="m", rebalance_timeout_ms=1, state=state, epoch=epoch, assigned=assigned, revoking=revoking
    )
    return Step(
        member,
        epoch + is_revoking + random.randrange(3),
        random_partitions(random),
        random.choice([None, random_partitions(random), {}]),
        random_partitions(random, assigned, revoking),
    )


def test_members_reconcile_like_in_kafka(java: Java) -> None:
    random = Random(4)
    steps = [random_step(random) for _ in range(RECONCILIATIONS)]
    lines = [step.line() for step in steps]
    for line, step, answer in zip(lines, steps, java.answers(lines), strict=True):
        assert step.answer() == answer, line
