"""`odradek log dump` prints the same lines for Apache Kafka's files as Kafka's DumpLogSegments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.cli.logs.command import log

HERE = Path(__file__).parent / "kafka-3.9.1"
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
DECODERS = {
    "__consumer_offsets-0": ["--value-decoder", "offsets-topic"],
    "__transaction_state-0": ["--value-decoder", "transaction-log"],
}
PRINTED = sorted(HERE.glob("*.dump/*.txt"))


@pytest.mark.parametrize("printed", PRINTED, ids=lambda path: f"{path.parent.stem}/{path.stem}")
def test_every_line_is_kafkas(printed: Path) -> None:
    directory = HERE / printed.parent.stem
    partition = printed.stem
    files = [str(path) for path in sorted((directory / partition).iterdir()) if path.suffix in SUFFIXES]
    options = DECODERS.get(partition, ["--print-data-log"])
    result = CliRunner().invoke(log, ["dump", *files, "--deep-iteration", *options])
    assert result.stdout.replace(f"{directory}/", "").splitlines() == printed.read_text().splitlines()
    assert result.exit_code == 0, result.stderr


def test_every_partition_has_its_dump() -> None:
    partitions = {(path.parent.name, path.name) for path in HERE.glob("*/*") if path.is_dir()}
    assert {(path.parent.stem, path.stem) for path in PRINTED} == partitions


@pytest.mark.parametrize("kind", ["stopped", "killed"])
def test_verify_finds_nothing_wrong_with_kafkas_directories(kind: str) -> None:
    result = CliRunner().invoke(log, ["verify", str(HERE / kind), "--deep", "--output", "json"])
    report = json.loads(result.stdout)
    assert (result.exit_code, report["errors"], report["warnings"]) == (0, 0, 0), report["findings"]
    assert len(report["partitions"]) == len(list((HERE / f"{kind}.dump").iterdir()))
