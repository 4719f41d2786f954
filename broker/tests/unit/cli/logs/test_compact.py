"""`odradek log compact`: a pass without a broker, its limits, and that the result is the same as with a broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.system_ports import SystemFiles
from odradek.base.types import TopicPartition
from odradek.cli.logs.command import log
from odradek.cli.logs.compact import CompactSettings, compact
from odradek.log import checkpoints
from odradek.records.formats import iterate_entries, iterate_records
from odradek.records.v2.batch import BatchBuilder
from odradek_testkit.logs import open_log, small_segments
from odradek_testkit.loop import ManualClock

CLEANER_FILE = "cleaner-offset-checkpoint"
Pairs = list[tuple[bytes | None, bytes | None]]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(log, ["compact", *map(str, arguments)])


def write(directory: Path, pairs: Pairs) -> int:
    """Write a batch for each record and several batches per segment. The high watermark is the end offset."""
    files = SystemFiles()
    written = open_log(files, ManualClock(), config=small_segments(segment_bytes=400), directory=str(directory))
    for number, (key, value) in enumerate(pairs):
        builder = BatchBuilder(limit_bytes=1 << 20)
        builder.append(key, value, timestamp_ms=1_700_000_000_000 + number)
        written.append_as_leader(memoryview(bytearray(builder.build())), leader_epoch=0)
    end = written.log_end_offset
    written.close()
    marks = {TopicPartition("customers", 0): end}
    root = directory.parent
    files.write_atomically(f"{root}/{checkpoints.HIGH_WATERMARK_FILE}", checkpoints.encode_offsets(marks))
    files.write_atomically(f"{root}/{CLEANER_FILE}", checkpoints.encode_offsets({TopicPartition("customers", 0): 0}))
    files.write_atomically(f"{root}/{checkpoints.CLEAN_SHUTDOWN_FILE}", checkpoints.clean_shutdown_mark())
    return end


def read(directory: Path) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return offset, key and value of every record in the files."""
    found = []
    for path in sorted(directory.glob("*.log")):
        content = path.read_bytes()
        for position, header in iterate_entries(content):
            records = iterate_records(content, position, header, limit=1 << 20)
            found += [(record.offset, record.key, record.value) for record in records]
    return found


def checkpointed(directory: Path, name: str) -> int:
    path = directory.parent / name
    return checkpoints.decode_offsets(path.read_bytes(), str(path))[TopicPartition("customers", 0)]


PAIRS: Pairs = [(b"key %d" % (number % 4), b"value %d" % number) for number in range(40)]


@pytest.fixture
def customers(tmp_path: Path) -> Path:
    directory = tmp_path / "customers-0"
    write(directory, PAIRS)
    return directory


def test_a_pass_keeps_the_last_of_each_key(customers: Path) -> None:
    result = run(customers, "--output", "json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    clean = report["cleanUpTo"]
    assert report["compacted"] and 30 < clean < 40
    assert report["records"] == [clean, 4]
    newest = {key: (offset, key, value) for offset, (key, value) in enumerate(PAIRS[:clean])}
    active = [(offset, *PAIRS[offset]) for offset in range(clean, 40)]
    assert read(customers) == sorted(newest.values()) + active
    assert checkpointed(customers, CLEANER_FILE) == clean
    assert checkpointed(customers, checkpoints.RECOVERY_POINT_FILE) == 40


def test_the_compacted_log_is_valid_and_complete(customers: Path) -> None:
    run(customers)
    result = CliRunner().invoke(log, ["verify", str(customers), "--deep", "--output", "json"])
    findings = json.loads(result.stdout)["findings"]
    assert [(finding["severity"], finding["check"]) for finding in findings] == [("note", "offsets")]
    opened = open_log(
        SystemFiles(),
        ManualClock(),
        config=small_segments(segment_bytes=400),
        clean=True,
        recovery_point=checkpointed(customers, checkpoints.RECOVERY_POINT_FILE),
        directory=str(customers),
    )
    assert (opened.log_start_offset, opened.log_end_offset) == (0, 40)
    opened.close()


def test_a_second_pass_changes_nothing(customers: Path) -> None:
    run(customers)
    before = {path: path.read_bytes() for path in customers.iterdir()}
    result = run(customers)
    assert result.exit_code == 0
    assert "nothing to compact: it is compacted up to the active segment" in result.stdout
    assert {path: path.read_bytes() for path in customers.iterdir()} == before
    again = json.loads(run(customers, "--dirty-from", 0, "--output", "json").stdout)
    assert again["records"][1] == 4


def test_records_that_are_not_replicated_are_kept(customers: Path) -> None:
    bases = sorted(int(path.stem) for path in customers.glob("*.log"))
    report = json.loads(run(customers, "--up-to", bases[2] + 1, "--output", "json").stdout)
    assert report["cleanUpTo"] == bases[2]
    nothing = run(customers, "--up-to", 1, "--dirty-from", 0).stdout
    assert "no record from offset 0 on can be compacted: it is replicated up to 1" in nothing


def test_young_records_are_kept(customers: Path) -> None:
    assert "nothing to compact" in run(customers, "--min-compaction-lag-ms", 10**15).stdout


def test_tombstones_are_removed_after_their_retention(tmp_path: Path) -> None:
    directory = tmp_path / "customers-0"
    pairs: Pairs = [(b"gone", b"value"), (b"gone", None)]
    write(directory, pairs + [(b"filler %d" % number, b"value") for number in range(30)])
    run(directory)
    assert (1, b"gone", None) in read(directory)
    run(directory, "--dirty-from", 0, "--delete-retention-ms", 0)
    # The first pass has written the time from which the tombstone can be removed: a day later.
    assert (1, b"gone", None) in read(directory)


def test_a_tombstone_without_retention_is_removed_by_the_second_pass(tmp_path: Path) -> None:
    directory = tmp_path / "customers-0"
    pairs: Pairs = [(b"gone", b"value"), (b"gone", None)]
    write(directory, pairs + [(b"filler %d" % number, b"value") for number in range(30)])
    for _ in range(2):
        assert run(directory, "--dirty-from", 0, "--delete-retention-ms", 0).exit_code == 0
    assert b"gone" not in {key for _, key, _ in read(directory)}


def test_a_table_for_people(customers: Path) -> None:
    result = run(customers)
    assert "dirty from 0, now clean up to" in result.stdout
    assert "records read and kept" in result.stdout


def test_a_directory_in_use_is_refused(customers: Path) -> None:
    before = read(customers)
    release = SystemFiles().lock(str(customers.parent / checkpoints.LOCK_FILE))
    try:
        result = run(customers)
    finally:
        release()
    assert result.exit_code == 1
    assert "is in use: stop its broker first" in result.stderr
    assert read(customers) == before
    assert run(customers).exit_code == 0


def test_an_unknown_high_watermark_is_an_error(customers: Path) -> None:
    (customers.parent / checkpoints.HIGH_WATERMARK_FILE).unlink()
    result = run(customers)
    assert result.exit_code == 1
    assert "give it with --up-to OFFSET" in result.stderr


def test_a_log_that_was_never_compacted_requires_dirty_from(customers: Path) -> None:
    (customers.parent / CLEANER_FILE).unlink()
    before = {path: path.read_bytes() for path in customers.iterdir()}
    result = run(customers)
    assert result.exit_code == 1
    assert "customers-0 was never compacted" in result.stderr
    assert {path: path.read_bytes() for path in customers.iterdir()} == before
    assert json.loads(run(customers, "--dirty-from", 0, "-o", "json").stdout)["compacted"]


def test_records_without_a_key_are_counted(tmp_path: Path) -> None:
    directory = tmp_path / "customers-0"
    write(directory, [(None, b"value")] * 3 + PAIRS)
    result = run(directory)
    assert result.exit_code == 0
    assert result.stderr == "Warning: 3 records without a key were dropped.\n"


def test_a_corrupt_log_is_not_changed(customers: Path) -> None:
    path = min(customers.glob("*.log"))
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    result = run(customers)
    assert result.exit_code == 1
    assert "Traceback" not in result.stderr
    assert path.read_bytes() == content
    assert not list(customers.glob("*.cleaned")) + list(customers.glob("*.swap"))


@pytest.mark.parametrize("name", ["none-0", "customers", "empty-0"])
def test_a_directory_without_a_log_is_an_error_without_a_trace(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty-0").mkdir()
    result = run(tmp_path / name)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")


def test_progress_is_reported_in_bytes(customers: Path) -> None:
    progress: list[tuple[int, int]] = []
    compact(customers, CompactSettings(), lambda done, total: progress.append((done, total)))
    assert progress
    assert all(0 < done <= total for done, total in progress)
    assert [done for done, _ in progress] == sorted(done for done, _ in progress)


@given(numbers=st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=60), passes=st.integers(1, 2))
@settings(max_examples=25, deadline=None)
def test_against_a_dict(tmp_path_factory: pytest.TempPathFactory, numbers: list[tuple[int, bool]], passes: int) -> None:
    directory = tmp_path_factory.mktemp("compacted") / "customers-0"
    pairs: Pairs = [
        (b"key %d" % key, None if deletes else b"value %d" % place) for place, (key, deletes) in enumerate(numbers)
    ]
    write(directory, pairs)
    for _ in range(passes):
        compact(directory, CompactSettings(dirty_from=0), lambda *_: None)
    kept = read(directory)
    assert {key: value for _, key, value in kept} == dict(pairs)
    assert all(pairs[offset] == (key, value) for offset, key, value in kept)
