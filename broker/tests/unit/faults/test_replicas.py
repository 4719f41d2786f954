"""Replicas are compared by the concatenated bytes of their segments."""

from __future__ import annotations

from pathlib import Path

from ordeal.replicas import differences


def write(volume: Path, partition: int, **segments: bytes) -> None:
    directory = volume / f"t-{partition}"
    directory.mkdir(parents=True)
    for name, content in segments.items():
        (directory / f"{name[1:]:>020}.log").write_bytes(content)


def test_segments_may_begin_elsewhere(tmp_path: Path) -> None:
    volumes = {broker: tmp_path / str(broker) for broker in range(2)}
    write(volumes[0], 0, s0=b"aabb", s2=b"cc")
    write(volumes[1], 0, s0=b"aa", s1=b"bbcc")
    assert differences(volumes, "t", 1) == []


def test_different_or_missing_bytes_are_told(tmp_path: Path) -> None:
    volumes = {broker: tmp_path / str(broker) for broker in range(2)}
    write(volumes[0], 0, s0=b"aabb")
    write(volumes[1], 0, s0=b"aab")
    write(volumes[0], 1, s0=b"same")
    write(volumes[1], 1, s0=b"same")
    write(volumes[0], 2, s0=b"x")
    messages = differences(volumes, "t", 3)
    assert [message.split(" differ")[0] for message in messages] == [
        "the replicas of partition 0",
        "the replicas of partition 2",
    ]
    assert "broker 0 has 4 bytes" in messages[0]
    assert "broker 1 has 3 bytes" in messages[0]
