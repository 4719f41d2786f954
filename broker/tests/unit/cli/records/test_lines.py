"""Splitting of bytes into lines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.records import lines
from odradek.cli.records.lines import LineSplitter, LineTooLongError, read_lines


def split(chunks: list[bytes]) -> list[bytes]:
    splitter = LineSplitter()
    found = [line for chunk in chunks for line in splitter.feed(chunk)]
    return found + splitter.finish()


def test_lines_end_with_either_line_end() -> None:
    assert split([b"a\r\nb\n\nc"]) == [b"a", b"b", b"", b"c"]
    assert split([b"a\r", b"\nb\r"]) == [b"a", b"b"]
    assert split([b""]) == []


@given(st.lists(st.text("ab\n\r", max_size=6).map(str.encode), max_size=8))
def test_it_does_not_matter_how_the_bytes_are_cut(chunks: list[bytes]) -> None:
    assert split(chunks) == split([b"".join(chunks)])


@given(st.lists(st.binary(max_size=5).filter(lambda line: b"\n" not in line and not line.endswith(b"\r"))))
def test_joined_lines_are_split(whole: list[bytes]) -> None:
    assert split([b"".join(line + b"\n" for line in whole)]) == whole


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 10)
    splitter = LineSplitter()
    splitter.feed(b"12345")
    with pytest.raises(LineTooLongError):
        splitter.feed(b"678901")


async def test_a_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a\nb\nc")
    with path.open("rb") as file:
        assert [line async for found in read_lines(file.fileno()) for line in found] == [b"a", b"b", b"c"]


async def test_a_line_from_a_pipe_is_read_when_it_is_written() -> None:
    reader, writer = os.pipe()
    try:
        found = read_lines(reader)
        os.write(writer, b"first\nsec")
        assert await anext(found) == [b"first"]
        os.write(writer, b"ond\nthird")
        assert await anext(found) == [b"second"]
        os.close(writer)
        assert await anext(found) == [b"third"]
        with pytest.raises(StopAsyncIteration):
            await anext(found)
    finally:
        os.close(reader)
