"""`odradek log verify`: each type of damage is found and reported with its position, and nothing is written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.system_ports import SystemFiles
from odradek.cli.logs.checks import CheckRequest, check_partition
from odradek.cli.logs.command import log
from odradek.cli.logs.findings import MOST_OF_A_KIND, Findings, Severity
from odradek.cli.logs.verify import verify
from odradek.log import checkpoints
from odradek.records.v2.batch import assemble, read_header

FIRST, SECOND = "00000000000000000000", "00000000000000000006"
Change = Callable[[Path], None]


def run(*arguments: object) -> tuple[int, dict[str, list[dict[str, object]]]]:
    result = CliRunner().invoke(log, ["verify", *map(str, arguments), "--output", "json"])
    return result.exit_code, json.loads(result.stdout)


def edited(path: Path, edit: Callable[[bytearray], object]) -> None:
    content = bytearray(path.read_bytes())
    edit(content)
    path.write_bytes(content)


def flip(position: int) -> Callable[[bytearray], None]:
    def edit(content: bytearray) -> None:
        content[position] ^= 1

    return edit


def cut(count: int) -> Callable[[bytearray], None]:
    def edit(content: bytearray) -> None:
        del content[-count:]

    return edit


def in_file(name: str, edit: Callable[[bytearray], object]) -> Change:
    return lambda root: edited(root / name, edit)


def in_partition(name: str, edit: Callable[[bytearray], object]) -> Change:
    return in_file(f"orders-0/{name}", edit)


def removed(name: str) -> Change:
    return lambda root: (root / name).unlink()


def made(name: str, content: bytes = b"") -> Change:
    def change(root: Path) -> None:
        if name.endswith("/"):
            (root / name).mkdir()
        else:
            (root / name).write_bytes(content)

    return change


def swap_entries(content: bytearray) -> None:
    content[0:8], content[8:16] = content[8:16], content[0:8]


def repeat_first_batch(content: bytearray) -> None:
    content += content[: 12 + int.from_bytes(content[8:12], "big")]


def unclean(change: Change) -> Change:
    def both(root: Path) -> None:
        (root / checkpoints.CLEAN_SHUTDOWN_FILE).unlink()
        change(root)

    return both


def last_log(root: Path) -> Path:
    return max((root / "orders-0").glob("*.log"))


def offsets(offset: int) -> bytes:
    return f"0\n1\norders 0 {offset}\n".encode()


def transaction_index(root: Path) -> Path:
    (path,) = (root / "orders-0").glob("*.txnindex")
    return path


def empty_partition(root: Path) -> None:
    (root / "empty-0").mkdir()
    shutil.copy(root / "orders-0" / checkpoints.PARTITION_METADATA_FILE, root / "empty-0")


DAMAGE: dict[str, tuple[Change, str, str]] = {
    "a bit of a batch": (in_partition(f"{FIRST}.log", flip(100)), "batch", "error"),
    "the magic byte": (in_partition(f"{FIRST}.log", flip(16)), "tail", "error"),
    "a sealed segment cut short": (in_partition(f"{FIRST}.log", cut(5)), "tail", "error"),
    "offsets that do not rise": (in_partition(f"{FIRST}.log", repeat_first_batch), "offsets", "error"),
    "zeros at the end after a crash": (
        unclean(lambda root: edited(last_log(root), lambda content: content.extend(bytes(300)))),
        "tail",
        "warning",
    ),
    "zeros at the end after a clean stop": (
        lambda root: edited(last_log(root), lambda content: content.extend(bytes(300))),
        "tail",
        "error",
    ),
    "an index into a batch": (in_partition(f"{FIRST}.index", flip(7)), "offset index", "error"),
    "an index behind the log": (in_partition(f"{FIRST}.index", flip(-3)), "offset index", "error"),
    "an index with half an entry": (in_partition(f"{FIRST}.index", cut(3)), "offset index", "error"),
    "an index out of order": (in_partition(f"{FIRST}.index", swap_entries), "offset index", "error"),
    "an index of other offsets": (in_partition(f"{FIRST}.index", flip(3)), "offset index", "error"),
    "an index that is gone": (removed(f"orders-0/{FIRST}.index"), "index", "warning"),
    "a time index too low": (
        in_partition(f"{FIRST}.timeindex", lambda content: content.__setitem__(slice(8), bytes(8))),
        "time index",
        "error",
    ),
    "a time index with half an entry": (in_partition(f"{FIRST}.timeindex", cut(1)), "time index", "error"),
    "a time index without its last entry": (in_partition(f"{FIRST}.timeindex", cut(12)), "time index", "warning"),
    "a transaction index that is gone": (
        lambda root: transaction_index(root).unlink(),
        "transaction index",
        "error",
    ),
    "a transaction of another producer": (
        lambda root: edited(transaction_index(root), flip(9)),
        "transaction index",
        "error",
    ),
    "a transaction index cut short": (
        lambda root: edited(transaction_index(root), cut(1)),
        "transaction index",
        "error",
    ),
    "a snapshot's bit": (in_partition(f"{SECOND}.snapshot", flip(-1)), "producer snapshot", "error"),
    "a snapshot above the end": (
        lambda root: (root / f"orders-0/{SECOND}.snapshot").rename(root / f"orders-0/{'9' * 20}.snapshot"),
        "producer snapshot",
        "warning",
    ),
    "a leader epoch file that is none": (
        in_partition(checkpoints.LEADER_EPOCH_FILE, flip(0)),
        "leader epochs",
        "error",
    ),
    "other leader epochs": (
        made(f"orders-0/{checkpoints.LEADER_EPOCH_FILE}", b"0\n1\n4 0\n"),
        "leader epochs",
        "error",
    ),
    "no leader epochs": (removed(f"orders-0/{checkpoints.LEADER_EPOCH_FILE}"), "leader epochs", "warning"),
    "a topic id that is none": (in_partition(checkpoints.PARTITION_METADATA_FILE, flip(0)), "topic id", "error"),
    "a checkpoint that is none": (in_file(checkpoints.RECOVERY_POINT_FILE, flip(0)), "checkpoint", "error"),
    "a high watermark above the end": (made(checkpoints.HIGH_WATERMARK_FILE, offsets(999)), "checkpoint", "error"),
    "a log start above the end": (made(checkpoints.LOG_START_FILE, offsets(999)), "checkpoint", "error"),
    "a recovery point above the end": (made(checkpoints.RECOVERY_POINT_FILE, offsets(999)), "checkpoint", "warning"),
    "a clean offset above the end": (made("cleaner-offset-checkpoint", offsets(999)), "checkpoint", "warning"),
    "no owner": (removed(checkpoints.META_PROPERTIES_FILE), "owner", "warning"),
    "an owner without names": (made(checkpoints.META_PROPERTIES_FILE, b"version=0\n"), "owner", "warning"),
    "an owner of KRaft": (made(checkpoints.META_PROPERTIES_FILE, b"version=1\n"), "owner", "error"),
    "half a compaction": (made(f"orders-0/{FIRST}.log.cleaned"), "leftover", "warning"),
    "a swap that was cut short": (made(f"orders-0/{FIRST}.log.swap"), "leftover", "warning"),
    "a file to be removed": (made(f"orders-0/{FIRST}.log.deleted"), "leftover", "note"),
    "an index without its log": (made(f"orders-0/{'3' * 20}.index"), "leftover", "warning"),
    "an unknown file": (made("orders-0/notes.txt"), "leftover", "note"),
    "a stray replica": (made("old-3.1234-stray/"), "directory", "warning"),
    "a deleted topic": (made("old-3.1234-delete/"), "directory", "note"),
    "another directory": (made("lost+found/"), "directory", "note"),
    "another file": (made("notes.txt"), "file", "note"),
    "no segment": (empty_partition, "segments", "warning"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_found(log_root: Path, what: str) -> None:
    damage, check, severity = DAMAGE[what]
    damage(log_root)
    exit_code, report = run(log_root)
    assert (check, severity) in {(finding["check"], finding["severity"]) for finding in report["findings"]}
    assert exit_code == (1 if severity == "error" else 0), report["findings"]


def test_valid_logs_pass(log_root: Path) -> None:
    exit_code, report = run(log_root, "--deep")
    assert (exit_code, report["findings"]) == (0, [])
    (partition,) = report["partitions"]
    assert (partition["segments"], partition["batches"], partition["endOffset"]) == (5, 14, 26)


def test_a_partition_alone(partition: Path) -> None:
    edited(partition / f"{FIRST}.log", flip(100))
    exit_code, report = run(partition)
    assert exit_code == 1
    (finding,) = report["findings"]
    assert (finding["file"], finding["position"]) == (str(partition / f"{FIRST}.log"), 0)


def test_nothing_is_written(log_root: Path) -> None:
    for what in ("a bit of a batch", "an index out of order", "half a compaction"):
        DAMAGE[what][0](log_root)

    def state() -> dict[Path, tuple[bytes, int]]:
        files = (path for path in log_root.rglob("*") if path.is_file())
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}

    before = state()
    assert run(log_root, "--deep")[0] == 1
    assert state() == before


def test_a_directory_in_use_is_a_warning(log_root: Path, partition: Path) -> None:
    release = SystemFiles().lock(str(log_root / checkpoints.LOCK_FILE))
    try:
        for path in (log_root, partition):
            exit_code, report = run(path)
            assert exit_code == 0
            assert [(f["severity"], f["check"]) for f in report["findings"]] == [("warning", "in use")]
    finally:
        release()
    assert run(log_root)[1]["findings"] == []


def test_other_processes_find_the_same(log_root: Path) -> None:
    for number in range(1, 4):
        shutil.copytree(log_root / "orders-0", log_root / f"orders-{number}")
        edited(log_root / f"orders-{number}" / f"{FIRST}.log", flip(100))
    reported: list[tuple[int, int]] = []
    inline = verify([log_root], deep=False, jobs=1, progress=lambda *_: None)
    spread = verify([log_root], deep=False, jobs=2, progress=lambda done, total: reported.append((done, total)))
    assert spread == inline
    assert inline.count(Severity.ERROR) == 3
    assert len(reported) == 4
    assert reported[-1][0] == reported[-1][1] > 0


def test_deep_checks_the_records(partition: Path) -> None:
    """Return a batch with a correct CRC and a record whose offset contradicts the header."""
    path = partition / f"{FIRST}.log"
    content = path.read_bytes()
    header = read_header(content)
    records = bytearray(content[61 : header.size])
    records[3] = 0x7E
    path.write_bytes(assemble(header, bytes(records)) + content[header.size :])
    assert run(partition)[0] == 0
    exit_code, report = run(partition, "--deep")
    assert exit_code == 1
    assert report["findings"][0]["check"] == "batch"


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_no_flipped_bit_of_a_sealed_segment_escapes(sound: tuple[Path, bytes], data: st.DataObject) -> None:
    path, content = sound
    position = data.draw(st.integers(0, len(content) - 1))
    bit = data.draw(st.integers(0, 7))
    damaged = bytearray(content)
    damaged[position] ^= 1 << bit
    path.write_bytes(damaged)
    try:
        report = check_partition(CheckRequest(path=str(path.parent), clean=True))
    finally:
        path.write_bytes(content)
    assert any(finding.severity is Severity.ERROR for finding in report.findings)


@pytest.fixture(scope="module")
def sound(sound_root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """A sealed segment of a log, and its content."""
    copy = shutil.copytree(sound_root, tmp_path_factory.mktemp("flipped") / "data")
    path = copy / "orders-0" / f"{FIRST}.log"
    return path, path.read_bytes()


def test_a_table_for_people(log_root: Path) -> None:
    edited(log_root / "orders-0" / f"{FIRST}.log", flip(100))
    (log_root / "notes.txt").write_text("")
    result = CliRunner().invoke(log, ["verify", str(log_root)])
    assert result.exit_code == 1
    assert "SEVERITY" in result.stdout
    assert "error      batch" in result.stdout
    assert "notes.txt" not in result.stdout
    assert "1 errors, 0 warnings, 1 notes." in result.stdout
    assert "notes.txt" in CliRunner().invoke(log, ["verify", str(log_root), "--notes"]).stdout


def test_a_path_that_is_not_a_directory_is_an_error_without_a_trace(tmp_path: Path) -> None:
    result = CliRunner().invoke(log, ["verify", str(tmp_path / "none")])
    assert result.exit_code == 1
    assert result.stderr == f"Error: {tmp_path / 'none'} is not a directory.\n"


def test_a_kind_of_finding_is_listed_a_limited_number_of_times() -> None:
    findings = Findings()
    for number in range(MOST_OF_A_KIND + 5):
        findings.add(Severity.ERROR, "batch", "file", "broken", position=number)
    reported = findings.all()
    assert [finding.position for finding in reported[:-1]] == list(range(MOST_OF_A_KIND))
    assert reported[-1].text == "5 more of this kind"
