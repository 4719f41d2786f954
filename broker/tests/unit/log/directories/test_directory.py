from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from odradek.base.errors import ConfigError, StorageError
from odradek.base.system_ports import SystemFiles
from odradek.base.types import TopicPartition
from odradek.log import disk_lock
from odradek.log.checkpoints import MetaProperties
from odradek.log.directories.directory import Turns, deleted_name, open_directory, parse_log_name
from odradek_testkit.disk import MemoryFiles

OWNER = MetaProperties(cluster_id="cluster", broker_id=1)


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("events-0", TopicPartition("events", 0)),
        ("with-dash-12", TopicPartition("with-dash", 12)),
        ("dots.and_more-3", TopicPartition("dots.and_more", 3)),
        ("events", None),
        ("-0", None),
        ("events-", None),
        ("events-x", None),
        ("events-٣", None),
        ("events-0.5f1c-delete", None),
        ("events-0.5f1c-future", None),
        ("lost+found", None),
    ],
)
def test_which_directories_are_logs(name: str, partition: TopicPartition | None) -> None:
    assert parse_log_name(name) == partition


def test_a_deleted_logs_name_fits_the_file_system() -> None:
    unique = "0123456789abcdef0123456789abcdef"
    assert deleted_name(TopicPartition("events", 3), unique) == f"events-3.{unique}-delete"
    longest = deleted_name(TopicPartition("t" * 249, 12345), unique)
    assert len(longest) == 255
    assert longest.endswith(f"-12345.{unique}-delete")
    assert parse_log_name(longest) is None


def test_a_new_directory_is_claimed_and_a_second_broker_is_refused() -> None:
    files = MemoryFiles()
    directory = open_directory(files, "/data", OWNER)
    assert files.read("/data/meta.properties") == OWNER.encode()
    assert not directory.clean
    with pytest.raises(ConfigError, match="in use"):
        open_directory(files, "/data", OWNER)
    directory.release()
    with pytest.raises(ConfigError, match="belongs to broker 1"):
        open_directory(files, "/data", MetaProperties(cluster_id="cluster", broker_id=2))
    with pytest.raises(ConfigError, match="belongs to cluster"):
        open_directory(files, "/data", MetaProperties(cluster_id="other", broker_id=1))
    # A refusal releases the lock.
    open_directory(files, "/data", OWNER).release()


def test_the_clean_shutdown_file_is_removed() -> None:
    files = MemoryFiles()
    files.make_directories("/data")
    files.write_atomically("/data/.kafka_cleanshutdown", b"")
    directory = open_directory(files, "/data", OWNER)
    assert directory.clean
    directory.release()
    assert not open_directory(files, "/data", OWNER).clean


def test_what_is_found() -> None:
    files = MemoryFiles()
    for name in ("a-0", "b-7", "c-1.77-delete", "lost+found"):
        files.make_directories(f"/data/{name}")
    files.write_atomically("/data/recovery-point-offset-checkpoint", b"0\n1\na 0 12\n")
    files.write_atomically("/data/log-start-offset-checkpoint", b"not a checkpoint")
    directory = open_directory(files, "/data", OWNER)
    assert directory.found == [TopicPartition("a", 0), TopicPartition("b", 7)]
    assert directory.deleted == ["/data/c-1.77-delete"]
    assert directory.recovery_points == {TopicPartition("a", 0): 12}
    assert directory.log_start_offsets == {}


def test_an_older_checkpoint_does_not_overwrite_a_newer_one() -> None:
    """A worker thread wants to write a checkpoint that is older than the one that a truncation has written at once."""
    turns, written = Turns(), list[str]()
    older, newer = turns.draw(), turns.draw()
    assert turns.take(newer, lambda: written.append("newer"))
    assert not turns.take(older, lambda: written.append("older"))
    assert turns.take(turns.draw(), lambda: written.append("newest"))
    assert written == ["newer", "newest"]


def test_a_failed_write_does_not_count_as_written() -> None:
    turns, written = Turns(), list[str]()
    older, newer = turns.draw(), turns.draw()

    def fail() -> None:
        raise StorageError("broken")

    with pytest.raises(StorageError):
        turns.take(newer, fail)
    assert turns.take(older, lambda: written.append("older"))
    assert written == ["older"]


def test_threads_write_one_after_the_other(tmp_path: Path) -> None:
    """All writes use one temporary file: without the lock, a rename would often not find it."""
    turns, files = Turns(), SystemFiles()
    turn = turns.draw()

    def write_often() -> bool:
        writes = [turns.take(turn, lambda: files.write_atomically(f"{tmp_path}/checkpoint", b"0")) for _ in range(50)]
        return all(writes)

    with ThreadPoolExecutor(4) as threads:
        assert all(each.result() for each in [threads.submit(write_often) for _ in range(4)])
    assert files.list(str(tmp_path)) == ["checkpoint"]


def test_the_loop_does_not_wait_forever_for_a_thread_that_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_lock, "LONGEST_WAIT_S", 0.01)
    turns, refused, written = Turns(), list[str](), list[str]()

    def stuck() -> None:
        """Write while the loop wants to write, too."""
        try:
            turns.take_now(turns.draw(), lambda: written.append("loop"))
        except StorageError as error:
            refused.append(str(error))

    assert turns.take(turns.draw(), stuck)
    assert refused == ["the disk has not completed the write of a checkpoint for 0 s"]
    assert not written
    assert turns.take_now(turns.draw(), lambda: written.append("loop")), "afterwards it writes"
    assert written == ["loop"]
