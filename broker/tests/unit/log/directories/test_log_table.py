"""The table of logs: the number of logs per directory, and the choice of the emptiest directory for a new log."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from odradek.base.errors import KafkaStorageError
from odradek.base.types import TopicPartition
from odradek.log.directories.log_table import LogTable

PATHS = ("/a", "/b", "/c")
numbers = st.integers(0, 5)


class Directory:
    """A directory for the table, which counts the reads of its path."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.asked = 0
        self.write_queue = None

    @property
    def path(self) -> str:
        self.asked += 1
        return self._path


class Log:
    """A log for the table."""

    def __init__(self, number: int) -> None:
        self.topic_partition = TopicPartition("t", number)


def table_of(*paths: str) -> Any:
    table: Any = LogTable()
    table.directories.update({path: Directory(path) for path in paths})
    return table


def test_the_emptiest_directory_takes_a_new_log_and_the_first_one_of_equals() -> None:
    table = table_of(*PATHS)
    chosen = []
    for number in range(5):
        directory = table.choose(TopicPartition("t", number))
        table.add(directory, Log(number))
        chosen.append(directory.path)
    assert chosen == ["/a", "/b", "/c", "/a", "/b"]


def test_a_preferred_directory_wins_while_it_works() -> None:
    table = table_of(*PATHS)
    table.preferred[TopicPartition("t", 0)] = "/b"
    assert table.choose(TopicPartition("t", 0)) is table.directories["/b"]
    del table.directories["/b"]
    assert table.choose(TopicPartition("t", 0)) is table.directories["/a"]


def test_without_an_online_directory_no_log_is_created() -> None:
    with pytest.raises(KafkaStorageError):
        table_of().choose(TopicPartition("t", 0))


def test_a_failed_directory_is_not_chosen_even_if_it_still_has_logs() -> None:
    table = table_of("/a", "/b")
    table.add(table.directories["/b"], Log(0))
    del table.directories["/a"], table.directories["/b"]
    table.directories["/c"] = Directory("/c")
    assert table.choose(TopicPartition("t", 1)).path == "/c"


def test_the_choice_does_not_look_at_the_logs_that_are_there() -> None:
    table = table_of("/a")
    asked = []
    for count in (100, 100):
        before = table.directories["/a"].asked
        for number in range(count):
            table.add(table.choose(TopicPartition("t", number)), Log(number))
        asked.append(table.directories["/a"].asked - before)
    assert asked[0] == asked[1]


class Moves(RuleBasedStateMachine):
    """Logs are added, removed and replaced; the counts are right after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.table = table_of(*PATHS)

    @rule(number=numbers, path=st.sampled_from(PATHS))
    def add(self, number: int, path: str) -> None:
        replaced = self.table.current.get(TopicPartition("t", number))
        if replaced is not None:
            self.table.remove(replaced)
        self.table.add(self.table.directories[path], Log(number))

    @rule(number=numbers, path=st.sampled_from(PATHS))
    def add_again_elsewhere(self, number: int, path: str) -> None:
        log = self.table.current.get(TopicPartition("t", number))
        if log is not None:
            self.table.add(self.table.directories[path], log)

    @rule(number=numbers, path=st.sampled_from(PATHS))
    def add_future(self, number: int, path: str) -> None:
        topic_partition = TopicPartition("t", number)
        if topic_partition in self.table.current and topic_partition not in self.table.future:
            self.table.add_future(self.table.directories[path], Log(number))

    @rule(number=numbers)
    def promote(self, number: int) -> None:
        if TopicPartition("t", number) in self.table.future:
            self.table.promote(TopicPartition("t", number))

    @rule(number=numbers, future=st.booleans())
    def remove_twice(self, number: int, future: bool) -> None:
        log = (self.table.future if future else self.table.current).get(TopicPartition("t", number))
        if log is not None and (future or TopicPartition("t", number) not in self.table.future):
            assert self.table.remove(log) is not None
            assert self.table.remove(log) is None

    @invariant()
    def chooses_as_by_a_recount(self) -> None:
        counts = {path: len(self.table.within(directory)) for path, directory in self.table.directories.items()}
        expected = min(counts, key=lambda path: counts[path])
        assert self.table.choose(TopicPartition("new", 0)) is self.table.directories[expected]


TestMoves = Moves.TestCase
