"""The numbered load accepts repeats only where no broker could avoid them."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.records.v2.batch import BatchBuilder
from odradek_testkit.interop.numbered_load import NumberedLoad, Repeat


def batch(base_offset: int, *, producer_epoch: int, leader_epoch: int, producer_id: int = 7) -> bytes:
    """Build a batch of two records."""
    builder = BatchBuilder(limit_bytes=1 << 20)
    for _ in range(2):
        builder.append(None, b"", timestamp_ms=1)
    return builder.build(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=0,
    )


def check(path: Path, *batches: bytes) -> None:
    """Check a partition whose third record repeats the second one."""
    segment = path / "segment.log"
    segment.write_bytes(b"".join(batches))
    load = NumberedLoad("127.0.0.1:1", "numbers", 1)
    load.repeats[0].append(Repeat(offset=2, first_offset=1))
    load.check_repeats(0, segment)


def test_a_repeat_with_a_higher_epoch_under_a_new_leader_is_accepted(tmp_path: Path) -> None:
    check(
        tmp_path,
        batch(0, producer_epoch=0, leader_epoch=4),
        batch(2, producer_epoch=1, leader_epoch=5),
    )


@pytest.mark.parametrize(
    "second",
    [
        pytest.param({"producer_epoch": 0, "leader_epoch": 5}, id="same epoch of the producer"),
        pytest.param({"producer_epoch": 1, "leader_epoch": 4}, id="same leader"),
        pytest.param({"producer_epoch": 1, "leader_epoch": 5, "producer_id": 8}, id="another producer"),
    ],
)
def test_any_other_repeat_is_wrong(tmp_path: Path, second: dict[str, int]) -> None:
    with pytest.raises(AssertionError, match="Repeat"):
        check(tmp_path, batch(0, producer_epoch=0, leader_epoch=4), batch(2, **second))
