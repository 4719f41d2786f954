"""The assignors compared with those of the Java client: range with racks, and the sticky ones."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from odradek.base.types import TopicPartition
from odradek.client.consumer.assignor_values import Assignment, Member, Previous
from odradek.client.consumer.assignors import ASSIGNORS
from odradek_testkit.interop.apache import compile_java, jars, run_tool

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

SOURCE: Final = Path(__file__).parents[1] / "java" / "Assignments.java"
GENERATION: Final = 3
RACKS: Final = ("r1", "r2", "r3")


class Group(NamedTuple):
    """A group for which both clients assign."""

    assignor: str
    sizes: Mapping[str, int]
    members: Sequence[Member]
    racks: Mapping[TopicPartition, frozenset[str]]

    def assigned(self) -> Assignment:
        return ASSIGNORS[self.assignor].assign(self.members, self.sizes, self.racks)

    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for topic, size in self.sizes.items() for number in range(size)]

    def __str__(self) -> str:
        """The line for the Java program."""
        topics = [
            topic + "=" + "|".join("+".join(sorted(self.racks[TopicPartition(topic, n)])) for n in range(size))
            for topic, size in self.sizes.items()
        ]
        words = [self.assignor, ",".join(topics)]
        for member in self.members:
            previous = Previous(tuple(member.owned), member.generation_id) if member.owned else Previous()
            data = (ASSIGNORS[self.assignor].user_data(previous) or b"").hex()
            # A member with an eager assignor has revoked its partitions when it joins.
            is_cooperative = ASSIGNORS[self.assignor].cooperative
            owned = ",".join(f"{topic}/{number}" for topic, number in member.owned) if is_cooperative else ""
            fields = [",".join(member.topics), data, owned, str(member.generation_id), member.rack_id or ""]
            words.append(":".join([member.member_id, *fields]))
        return " ".join(words)


def sticky_groups(source: random.Random) -> list[Group]:
    """New groups, and groups from which a member has left. All members have the same topics."""
    found: list[Group] = []
    for _ in range(100):
        sizes = {f"t{number}": source.randint(1, 9) for number in range(source.randint(1, 4))}
        members = [Member(f"m{source.randint(0, 10**6)}", sorted(sizes)) for _ in range(source.randint(2, 6))]
        for assignor in ("sticky", "cooperative-sticky"):
            new = Group(assignor, sizes, members, {})
            new = new._replace(racks=dict.fromkeys(new.partitions(), frozenset()))
            assignment = new.assigned()
            rest = [
                member._replace(owned=sorted(assignment[member.member_id]), generation_id=GENERATION)
                for member in members[1:]
            ]
            found += [new, new._replace(members=rest)]
    return found


def range_groups(source: random.Random) -> list[Group]:
    """Groups with different topics, members and replicas in racks."""
    found: list[Group] = []
    for _ in range(200):
        sizes = {f"t{number}": source.choice([1, 4, 4, 6]) for number in range(source.randint(1, 4))}
        members = [
            Member(
                f"m{source.randint(0, 10**6)}",
                sorted(sizes) if source.random() < 0.7 else source.sample(sorted(sizes), 1),
                rack_id=source.choice([None, *RACKS]),
            )
            for _ in range(source.randint(1, 5))
        ]
        # Every topic needs a member.
        members[0] = members[0]._replace(topics=sorted(sizes))
        group = Group("range", sizes, members, {})
        racks = {each: frozenset(source.sample(RACKS, source.randint(0, 3))) for each in group.partitions()}
        found.append(group._replace(racks=racks))
    return found


def rendered(assignment: Assignment) -> str:
    return " ".join(
        f"{member}:{','.join(sorted(f'{topic}/{number}' for topic, number in assignment[member]))}"
        for member in sorted(assignment)
    )


def test_the_results_are_those_of_the_java_client(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    folder = jars("3.9.1", Path(pytestconfig.rootpath) / ".interop")
    compile_java(folder, [SOURCE], tmp_path)
    source = random.Random(7)
    groups = sticky_groups(source) + range_groups(source)
    output = run_tool(folder, "Assignments", [], stdin="".join(f"{group}\n" for group in groups), classes=tmp_path)
    lines = [line for line in output.splitlines() if ":" in line]
    assert lines == [rendered(group.assigned()) for group in groups]
