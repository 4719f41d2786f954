"""Flushes that `flush.messages` requires: the durable limit of a log, and one flush for many appends."""

from __future__ import annotations

import pytest

from odradek.base.config import TopicConfig
from odradek.log.file_names import OutdatedFlushError
from odradek.log.flush import NO_LIMIT, FlushTicket
from odradek.log.partition_log import PartitionLog
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.logs import DIRECTORY, RecordingHost, batch, open_log, roll
from odradek_testkit.loop import ManualClock

EACH = TopicConfig(flush_messages=1)


def append(log: PartitionLog, *values: bytes) -> None:
    log.append_as_leader(batch(*values), leader_epoch=0)


def begin(log: PartitionLog, host: RecordingHost) -> FlushTicket:
    """Begin the one flush that was requested."""
    assert host.flushes.count(log) == 1
    host.flushes.clear()
    ticket = log.begin_flush()
    assert ticket is not None
    return ticket


def end(log: PartitionLog, files: MemoryFiles, ticket: FlushTicket) -> None:
    ticket.run(files)
    log.end_flush(ticket)


def test_by_default_no_append_waits_for_a_flush(files: MemoryFiles, clock: ManualClock, host: RecordingHost) -> None:
    log = open_log(files, clock, host=host)
    append(log, b"a")
    assert (log.durable_limit, host.flushes) == (NO_LIMIT, [])


def test_an_append_requests_a_flush_and_does_not_sync(
    files: MemoryFiles, clock: ManualClock, host: RecordingHost
) -> None:
    log = open_log(files, clock, host=host, config=TopicConfig(flush_messages=3))
    append(log, b"a", b"b")
    assert (log.durable_limit, host.flushes) == (NO_LIMIT, [])
    append(log, b"c")
    assert (log.durable_limit, log.recovery_point) == (2, 0)
    end(log, files, begin(log, host))
    assert (log.durable_limit, log.recovery_point) == (NO_LIMIT, 3)


def test_one_flush_covers_all_appends_before_it_and_the_next_one_all_appends_during_it(
    files: MemoryFiles, clock: ManualClock, host: RecordingHost
) -> None:
    log = open_log(files, clock, host=host, config=EACH)
    for _ in range(5):
        append(log, b"a")
    first = begin(log, host)
    for _ in range(5):
        append(log, b"b")
    assert log.durable_limit == 0
    end(log, files, first)
    assert log.durable_limit == 5
    end(log, files, begin(log, host))
    assert log.durable_limit == NO_LIMIT


def test_a_follower_has_the_same_limit(files: MemoryFiles, clock: ManualClock, host: RecordingHost) -> None:
    log = open_log(files, clock, host=host, config=EACH)
    log.append_as_follower(batch(b"a", b"b", base_offset=7))
    assert log.durable_limit == 0
    end(log, files, begin(log, host))
    assert (log.durable_limit, log.recovery_point) == (NO_LIMIT, 9)


def test_a_truncation_ends_the_requirement_of_what_it_removes(
    files: MemoryFiles, clock: ManualClock, host: RecordingHost
) -> None:
    log = open_log(files, clock, host=host, config=EACH)
    append(log, b"a")
    end(log, files, begin(log, host))
    append(log, b"b")
    begun = begin(log, host)
    log.truncate_to(1)
    assert log.durable_limit == NO_LIMIT
    end(log, files, begun)
    assert (log.durable_limit, log.recovery_point) == (NO_LIMIT, 1)


def test_a_truncation_during_a_flush_requests_another_one_for_what_is_left(
    files: MemoryFiles, clock: ManualClock, host: RecordingHost
) -> None:
    log = open_log(files, clock, host=host, config=EACH)
    append(log, b"a")
    append(log, b"b")
    begun = begin(log, host)
    log.truncate_to(1)
    with pytest.raises(OutdatedFlushError):
        begun.run(files)
    assert log.durable_limit == 0
    end(log, files, begin(log, host))
    assert (log.durable_limit, log.recovery_point) == (NO_LIMIT, 1)


def test_a_log_that_continues_at_another_offset_becomes_durable_there(
    files: MemoryFiles, clock: ManualClock, host: RecordingHost
) -> None:
    log = open_log(files, clock, host=host, config=EACH)
    append(log, b"a")
    begun = begin(log, host)
    log.truncate_fully_and_start_at(50)
    with pytest.raises(OutdatedFlushError):
        begun.run(files)
    end(log, files, begin(log, host))
    assert (log.durable_limit, log.recovery_point) == (NO_LIMIT, 50)


def test_a_synchronous_flush_raises_the_limit(files: MemoryFiles, clock: ManualClock, host: RecordingHost) -> None:
    log = open_log(files, clock, host=host, config=EACH)
    append(log, b"a")
    log.flush()
    assert log.durable_limit == NO_LIMIT
    append(log, b"b")
    assert (log.durable_limit, host.flushes) == (1, [log, log])


def test_a_flush_that_never_ran_is_repeated_as_a_whole(
    files: MemoryFiles, clock: ManualClock, host: RecordingHost
) -> None:
    """Its directory may be offline, or the system refuses threads: nothing of it may count as done."""
    log = open_log(files, clock, host=host, config=EACH)
    append(log, b"a")
    dropped, repeated = begin(log, host), log.begin_flush()
    assert repeated is not None
    assert dropped.epochs is not None
    assert dropped.directories == (DIRECTORY, DIRECTORY.rpartition("/")[0])
    for name in ("offset", "data", "epochs", "directories"):
        assert getattr(repeated, name) == getattr(dropped, name), name
    end(log, files, repeated)
    assert log.begin_flush() is None


def test_what_changes_during_a_flush_is_left_to_the_next_one(
    files: MemoryFiles, clock: ManualClock, host: RecordingHost
) -> None:
    log = open_log(files, clock, host=host, config=EACH)
    append(log, b"a")
    first = begin(log, host)
    log.append_as_leader(batch(b"b"), leader_epoch=1)
    roll(log)
    end(log, files, first)
    second = log.begin_flush()
    assert second is not None
    assert first.epochs is not None
    assert second.epochs is not None
    assert second.epochs != first.epochs
    assert second.directories == (DIRECTORY,), "the log's own name is durable"
    assert [segment.base_offset for segment in second.sealed] == [0]
    end(log, files, second)
    assert (log.begin_flush(), log.durable_limit, log.recovery_point) == (None, NO_LIMIT, 2)


def test_records_that_a_killed_process_left_need_a_flush_when_the_settings_are_known(
    files: MemoryFiles, clock: ManualClock
) -> None:
    append(open_log(files, clock), b"a", b"b")
    host = RecordingHost(files)
    log = open_log(files, clock, host=host)
    assert (log.log_end_offset, log.durable_limit) == (2, NO_LIMIT)
    log.update_config(TopicConfig(flush_messages=3))
    assert (log.durable_limit, host.flushes) == (NO_LIMIT, [])
    log.update_config(EACH)
    assert log.durable_limit == 0
    end(log, files, begin(log, host))
    assert (log.durable_limit, log.recovery_point) == (NO_LIMIT, 2)


def test_of_a_log_that_is_durable_no_setting_requires_a_flush(
    files: MemoryFiles, clock: ManualClock, host: RecordingHost
) -> None:
    log = open_log(files, clock, host=host)
    append(log, b"a")
    log.flush()
    log.update_config(EACH)
    assert (log.durable_limit, host.flushes) == (NO_LIMIT, [])
