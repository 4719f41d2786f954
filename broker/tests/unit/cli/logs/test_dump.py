"""`odradek log dump`: its output for each type of file, and its errors for damaged files.
`tests/golden/log/test_dump.py` compares the output with Kafka's tool."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from odradek.cli.logs.command import log
from odradek.log import checkpoints

FIRST, SECOND = "00000000000000000000", "00000000000000000006"


def dump(*arguments: object) -> Result:
    return CliRunner().invoke(log, ["dump", *map(str, arguments)])


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_a_segment_batch_by_batch(partition: Path) -> None:
    result = dump(partition / f"{FIRST}.log")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[:2] == [f"Dumping {partition / FIRST}.log", "Log starting offset: 0"]
    assert re.fullmatch(
        r"baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
        r"partitionLeaderEpoch: 3 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
        r"position: 0 CreateTime: 1700000000001 size: \d+ magic: 2 compresscodec: none crc: \d+ isvalid: true",
        lines[2],
    )


def test_records_with_and_without_content(partition: Path) -> None:
    path = partition / f"{FIRST}.log"
    record = "| offset: 0 CreateTime: 1700000000000 keySize: 5 valueSize: 9 sequence: -1 headerKeys: [source]"
    assert record in dump(path, "--deep-iteration").stdout.splitlines()
    assert f"{record} key: key 0 payload: value 0.0" in dump(path, "--print-data-log").stdout.splitlines()
    assert "| key: key 0 payload: value 0.0" in dump(path, "-p", "--skip-record-metadata").stdout.splitlines()
    hexadecimal = dump(path, "--key-decoder", "hex", "--value-decoder", "string").stdout
    assert f"key: {b'key 0'.hex()} payload: value 0.0" in hexadecimal
    assert "key: <5 bytes are not a number of 4 bytes: 6b65792030>" in dump(path, "--key-decoder", "integer").stdout


def test_a_directory_is_dumped_file_by_file(log_root: Path) -> None:
    result = dump(log_root)
    assert result.exit_code == 0
    shown = re.findall(r"^Dumping (\S+)", result.stdout, re.MULTILINE)
    assert str(log_root / checkpoints.META_PROPERTIES_FILE) in shown
    dumpable = {str(path) for path in (log_root / "orders-0").iterdir()}
    assert dumpable < set(shown)
    assert "topic: orders partition: 0 offset: 26" in result.stdout
    assert "epoch: 3 startOffset: 0\nepoch: 5 startOffset: 12" in result.stdout
    assert "cluster.id=test" in result.stdout
    assert "uuid: 00000000-0000-0000-0000-00000000004d" in result.stdout


def test_json_has_a_line_for_each_thing(partition: Path) -> None:
    result = dump(partition, "--print-data-log", "--output", "json")
    printed = [json.loads(line) for line in result.stdout.splitlines()]
    of_first = [line for line in printed if line["file"].endswith(f"{FIRST}.log")]
    assert [line["kind"] for line in of_first[:4]] == ["start", "batch", "record", "record"]
    assert of_first[1]["deleteHorizonMs"] is None
    assert (of_first[1]["timestampType"], of_first[1]["timestamp"]) == ("CreateTime", 1_700_000_000_001)
    assert (of_first[2]["key"], of_first[2]["headerKeys"]) == ("key 0", ["source"])
    (aborted,) = [line for line in printed if line["file"].endswith(".txnindex")]
    assert (aborted["producerId"], aborted["firstOffset"], aborted["lastOffset"]) == (7, 12, 14)
    producers = [line for line in printed if line["kind"] == "producer"]
    assert {line["producerId"] for line in producers} == {7}


def test_a_flipped_bit(partition: Path) -> None:
    flip(partition / f"{FIRST}.log", 100)
    result = dump(partition / f"{FIRST}.log")
    printed = result.stdout
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Batches that are damaged in {partition / FIRST}.log\n  Position 0: the batch at")
    assert re.search(r"position: 0 CreateTime: 1700000000001 size: 127 .* isvalid: false$", printed, re.MULTILINE)
    assert printed.count("isvalid: false") == 1


def test_bytes_at_the_end_that_are_not_a_batch(partition: Path) -> None:
    path = partition / f"{FIRST}.log"
    path.write_bytes(path.read_bytes() + bytes(70))
    result = dump(path)
    assert result.exit_code == 1
    assert f"Found 70 invalid bytes at the end of {FIRST}.log" in result.stdout
    assert "the file was extended, but nothing was written there" in result.stderr


def test_no_more_bytes_are_read_than_requested(partition: Path) -> None:
    result = dump(partition / f"{FIRST}.log", "--max-bytes", 150)
    assert result.exit_code == 0
    assert result.stdout.count("baseOffset:") == 1
    assert "invalid bytes" not in result.stdout


def test_records_that_can_not_be_read_do_not_end_the_dump(partition: Path) -> None:
    path = partition / f"{FIRST}.log"
    flip(path, 61)
    result = dump(path, "--deep-iteration")
    assert result.exit_code == 1
    assert "Records that cannot be read in" in result.stderr
    assert "| offset: 2 " in result.stdout


def test_gaps_are_reported_but_are_not_errors(partition: Path) -> None:
    path = partition / f"{FIRST}.log"
    content = path.read_bytes()
    size = 12 + int.from_bytes(content[8:12], "big")
    path.write_bytes(content[:size] + content[2 * size :])
    result = dump(path, "--deep-iteration")
    assert result.exit_code == 0
    assert result.stderr == f"Non-consecutive offsets in {path}\n  1 is followed by 4\n"


def test_indexes_against_their_log(partition: Path) -> None:
    indexes = sorted((*partition.glob("*.index"), *partition.glob("*.timeindex")))
    sound = dump(*indexes, "--verify-index-only")
    assert (sound.exit_code, sound.stderr) == (0, "")
    assert "offset:" not in sound.stdout
    sane = dump(partition / f"{FIRST}.index", partition / f"{FIRST}.timeindex", "--index-sanity-check")
    assert sane.stdout.count("passed sanity check.") == 2
    flip(partition / f"{FIRST}.index", 3)
    flip(partition / f"{FIRST}.timeindex", 7)
    damaged = dump(*indexes)
    assert damaged.exit_code == 1
    assert f"Mismatches in :{partition / FIRST}.index\n  Index offset: 2, log offset: 3\n" in damaged.stderr
    assert f"Found timestamp mismatch in :{partition / FIRST}.timeindex" in damaged.stderr


@pytest.mark.parametrize(
    ("suffix", "content", "words"),
    [
        (".index", bytes(9), "9 bytes are not a multiple of the entry size, 8 bytes"),
        (".index", bytes.fromhex("ffffffff00000000"), "the last offset is 1 below the base offset"),
        (".timeindex", bytes(7) + b"\x05" + bytes(16), "the last timestamp, 0, is less than the first, 5"),
    ],
)
def test_an_index_that_a_broker_would_rebuild(partition: Path, suffix: str, content: bytes, words: str) -> None:
    path = partition / f"{FIRST}{suffix}"
    path.write_bytes(content)
    result = dump(path, "--index-sanity-check")
    assert result.exit_code == 1
    assert result.stderr == f"{path}: {words}\n"
    assert "passed" not in result.stdout


def test_time_indexes_that_point_nowhere_or_fall(partition: Path) -> None:
    path = partition / f"{FIRST}.timeindex"
    content = path.read_bytes()
    path.write_bytes(content + content[-12:] + bytes(8) + b"\x00\x00\x0f\x00")
    result = dump(path)
    assert result.exit_code == 1
    assert "Found out of order timestamp in :" in result.stderr
    assert "Indexed offset: 3840, found log offset: -1" in result.stderr


@pytest.mark.parametrize("suffix", [".snapshot", ".txnindex"])
def test_a_truncated_small_file(partition: Path, suffix: str) -> None:
    path = max(partition.glob(f"*{suffix}"))
    path.write_bytes(path.read_bytes()[:-1])
    result = dump(path)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"{path}: ")


def test_an_invalid_checkpoint(log_root: Path) -> None:
    path = log_root / checkpoints.HIGH_WATERMARK_FILE
    path.write_text("7\n")
    assert dump(path).exit_code == 1
    path.write_text("")
    assert dump(path).exit_code == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none", "none does not exist."),
        ("empty", "empty contains no file that can be dumped."),
        ("notes.txt", "notes.txt is not a supported file: the supported names end with .log, .index"),
        ("part.log", "part.log is not a segment file: its name is not an offset."),
    ],
)
def test_a_path_that_cannot_be_dumped_is_an_error_without_a_trace(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "part.log").write_text("")
    result = dump(tmp_path / name)
    assert result.exit_code == 1
    assert words in result.stderr


def test_a_log_decoder_excludes_a_key_decoder(partition: Path) -> None:
    result = dump(partition, "--value-decoder", "offsets-topic", "--key-decoder", "hex")
    assert result.exit_code == 2
    assert "omit --key-decoder" in result.stderr
