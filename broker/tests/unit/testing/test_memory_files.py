"""The faults of a disk in memory that no real disk has on command."""

from __future__ import annotations

from odradek_testkit.disk import MemoryFiles


def test_what_is_not_in_memory_is_read_only_by_those_who_may_wait() -> None:
    disk = MemoryFiles()
    file = disk.open("/a", create=True)
    file.pwritev((b"hello",), 0)
    answers = [True, False, True]
    disk.is_cold = lambda: answers.pop(0)
    assert file.pread_now(5, 0) is None
    assert file.pread_now(5, 0) == b"hello"
    assert not file.pread_into(bytearray(5), 5, 0)
    assert file.pread_now(0, 0) == b"", "nothing has to be in memory for this"
    assert file.pread(5, 0) == b"hello"
    assert not answers
