"""`odradek produce` and `odradek consume` with a broker: every way to write records and to read them."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from odradek import BlockingProducer
from odradek.testing.in_process import InProcessBroker

Odradek = Callable[..., str]


@pytest.fixture
def odradek(odradek_broker: InProcessBroker) -> Odradek:
    """Runs a command, which must succeed unless `fails` is given, and returns its output, or its error message."""

    def run(*arguments: str, stdin: str | bytes = "", fails: bool = False) -> str:
        result = subprocess.run(
            [sys.executable, "-m", "odradek.cli.main", *arguments],
            input=stdin if isinstance(stdin, bytes) else stdin.encode(),
            env={**os.environ, "ODRADEK_BOOTSTRAP_SERVER": odradek_broker.bootstrap},
            capture_output=True,
            check=False,
        )
        assert (result.returncode != 0) == fails, result.stderr.decode()
        return (result.stderr if fails else result.stdout).decode()

    return run


@pytest.fixture
def topic(odradek: Odradek) -> str:
    name = f"records-{uuid4().hex}"
    # The records have old timestamps: without this, the broker would delete them.
    odradek("topic", "create", name, "-p", "2", "-c", "retention.ms=-1")
    return name


@pytest.fixture
def read(odradek: Odradek, topic: str) -> Callable[..., list[Any]]:
    """Returns the records of the topic as JSON values, in the order of partition and offset."""

    def run(*arguments: str) -> list[Any]:
        lines = odradek("consume", topic, "--from-beginning", "-e", "-o", "json", *arguments).splitlines()
        return sorted(map(json.loads, lines), key=lambda record: (record["partition"], record["offset"]))

    return run


Read = Callable[..., list[Any]]


def test_headers_keys_and_timestamps_of_lines(odradek: Odradek, topic: str, read: Read) -> None:
    lines = "source:web,trace:1|alice=hello\n|bob=NULL\n"
    odradek("produce", topic, "--headers-delimiter", "|", "-k", "=", "--null-marker", "NULL", "-p", "1", stdin=lines)
    first, second = read()
    assert first["headers"] == [{"name": "source", "value": "web"}, {"name": "trace", "value": "1"}]
    assert (first["key"], first["value"], first["partition"]) == ("alice", "hello", 1)
    assert (second["key"], second["value"], second["headers"]) == ("bob", None, [])
    more = ["--header", "a=1", "-H", "a=2", "--key", "carol", "--timestamp", "2013-01-01T05:00:00", "-p", "0"]
    odradek("produce", topic, *more, stdin="v\n")
    headers = [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]
    (found,) = read("-p", "0")
    assert (found["key"], found["timestamp"], found["headers"]) == ("carol", 1357016400000, headers)
    assert odradek("consume", topic, "-p", "0", "--from-beginning", "-e", "--format", "{time} {header:a}") == (
        "2013-01-01T05:00:00.000Z 2\n"
    )


def test_tombstones(odradek: Odradek, topic: str, read: Read) -> None:
    odradek("produce", topic, "--tombstone", "-p", "0", stdin="alice\n")
    odradek("produce", topic, "-k", ":", "--empty-as-null", "-p", "0", stdin="bob:\ncarol:x\n")
    assert [(record["key"], record["value"]) for record in read()] == [("alice", None), ("bob", None), ("carol", "x")]


def test_json_input_and_the_output_of_consume_as_input(odradek: Odradek, topic: str, read: Read) -> None:
    raw = base64.b64encode(b"\x00\xff").decode()
    records = [
        {"key": "k", "value": {"n": 1}, "headers": {"h": "x"}, "timestamp": 1000, "partition": 1},
        {"key_base64": raw, "value": None, "headers": [{"name": "h", "value_base64": raw}], "timestamp": 2000},
    ]
    result = odradek(
        "produce", topic, "-i", "json", "-o", "json", stdin="\n".join(json.dumps(record) for record in records)
    )
    assert json.loads(result)["records"] == 2
    by_time = {record["timestamp"]: record for record in read()}
    assert (by_time[1000]["value"], by_time[1000]["partition"]) == ('{"n":1}', 1)
    assert (by_time[2000]["key_base64"], by_time[2000]["value"]) == (raw, None)
    copy = f"{topic}-copy"
    odradek("topic", "create", copy, "-p", "2", "-c", "retention.ms=-1")
    output = odradek("consume", topic, "--from-beginning", "-e", "-o", "json")
    odradek("produce", copy, "-i", "json", stdin=output)
    copied = odradek("consume", copy, "--from-beginning", "-e", "-o", "json").replace(copy, topic)
    assert sorted(copied.splitlines()) == sorted(output.splitlines())
    assert "Line 2 is not JSON" in odradek("produce", topic, "-i", "json", stdin='{"value": "v"}\n{\n', fails=True)


def test_files_and_directories_are_records(odradek: Odradek, topic: str, read: Read, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name, content in (("b", b"two\nlines\n"), ("a", b"\x00\xff"), ("sub/c", b"not read")):
        (tmp_path / name).write_bytes(content)
    odradek("produce", topic, "-f", str(tmp_path), "--whole", "--name-as-key", "-p", "0")
    odradek("produce", topic, "-f", str(tmp_path / "b"), "-f", "-", "-p", "0", stdin="three\n")
    found = [(record["key"], record.get("value"), record.get("value_base64")) for record in read()]
    assert found[:2] == [("a", None, "AP8="), ("b", "two\nlines\n", None)]
    assert [value for _, value, _ in found[2:]] == ["two", "lines", "three"]
    (tmp_path / "large").write_bytes(b"x" * 2_000_000)
    message = odradek("produce", topic, "-f", str(tmp_path / "large"), "--whole", fails=True)
    assert "the maximum size of a record: raise max.request.size" in message


def test_compression_acks_and_rate(odradek: Odradek, topic: str, read: Read) -> None:
    for index, compression in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        odradek("produce", topic, "-z", compression, "--acks", ("0", "1", "all")[index % 3], stdin=f"{compression}\n")
    summary = odradek("produce", topic, "--rate", "1000", "--acks", "1", "-o", "json", stdin="a\n" * 50)
    assert json.loads(summary)["records"] == 50
    values = sorted(record["value"] for record in read())
    assert values == ["a"] * 50 + ["gzip", "lz4", "none", "snappy", "zstd"]


def numbered(odradek: Odradek, topic: str) -> None:
    """Write ten records to each partition; record N has the timestamp 1000 N. Partition 0 has the even ones."""
    lines = [
        json.dumps({"value": str(number), "partition": number % 2, "timestamp": 1000 * number}) for number in range(20)
    ]
    odradek("produce", topic, "-i", "json", stdin="\n".join(lines))


def values(output: str) -> list[int]:
    return sorted(map(int, output.splitlines()))


def test_the_last_records(odradek: Odradek, topic: str) -> None:
    numbered(odradek, topic)
    assert values(odradek("consume", topic, "--last", "2", "-e")) == [16, 17, 18, 19]
    assert values(odradek("consume", topic, "--last-total", "3", "-e")) == [17, 18, 19]
    assert values(odradek("consume", topic, "--last", "100", "-e")) == list(range(20))
    assert values(odradek("consume", topic, "-p", "0", "--last", "1", "--end-offset", "5")) == [8]
    # Without an end, it continues with new records: here until the maximum.
    assert values(odradek("consume", topic, "--last", "1", "-n", "2")) == [18, 19]


def test_ranges_of_offsets_and_times(odradek: Odradek, topic: str) -> None:
    numbered(odradek, topic)
    assert values(odradek("consume", topic, "-p", "1", "--offset", "2", "--end-offset", "4")) == [5, 7]
    assert values(odradek("consume", topic, "--from-time", "4000", "--until-time", "7000")) == [4, 5, 6]
    assert values(odradek("consume", topic, "--from-beginning", "--until-time", "-1h")) == list(range(20))
    assert values(odradek("consume", topic, "--from-time", "-1h", "-e")) == []
    odradek("produce", topic, stdin="20\n")
    assert values(odradek("consume", topic, "--from-time", "-1h", "--until-time", "now")) == [20]


def test_the_last_records_around_gaps_in_the_offsets(
    odradek: Odradek, topic: str, odradek_broker: InProcessBroker
) -> None:
    """The marker at the end of each transaction has an offset, too."""

    with BlockingProducer(odradek_broker.bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        for number in range(6):
            with producer.transaction():
                producer.send(topic, str(number).encode(), partition=0)
    committed = ["-X", "isolation.level=read_committed"]
    assert values(odradek("consume", topic, "-p", "0", "--last", "4", "-e", *committed)) == [2, 3, 4, 5]


def test_several_topics_and_patterns(odradek: Odradek, topic: str) -> None:
    other = f"{topic}-other"
    odradek("topic", "create", other)
    odradek("produce", topic, stdin="a\n")
    odradek("produce", other, stdin="b\n")
    template = ["--from-beginning", "--format", "{topic} {value}"]
    expected = sorted([f"{topic} a", f"{other} b"])
    assert sorted(odradek("consume", topic, other, *template, "-e").splitlines()) == expected
    assert sorted(odradek("consume", "-r", f"{topic}.*", *template, "-e").splitlines()) == expected
    assert odradek("consume", "-r", topic, *template, "-e") == f"{topic} a\n"
    group = ["--group", topic, "-n", "2"]
    assert sorted(odradek("consume", "-r", topic, f"{topic}-o.*", *group, *template).splitlines()) == expected
    assert "no topic matches nothing-.*" in odradek("consume", "-r", "nothing-.*", fails=True)
    assert f"topic {other} has no partition 1" in odradek("consume", topic, other, "-p", "1", fails=True)


def test_decoders(odradek: Odradek, topic: str) -> None:
    record = {"key_base64": base64.b64encode((7).to_bytes(8, "big")).decode(), "value": {"a": 1}, "partition": 0}
    odradek("produce", topic, "-i", "json", stdin=json.dumps(record))
    options = ["consume", topic, "-p", "0", "--from-beginning", "-e", "--key-decoder", "long"]
    (line,) = odradek(*options, "--value-decoder", "json", "-o", "json").splitlines()
    assert (json.loads(line)["key"], json.loads(line)["value"]) == (7, {"a": 1})
    assert odradek(*options, "--format", "{key} {key:hex} {value}") == '7 0000000000000007 {"a":1}\n'
    message = odradek(*options, "--value-decoder", "int", fails=True)
    assert f"The value of the record at offset 0 of {topic}-0 cannot be decoded as int" in message
