"""Plan files: what is written can be read, and what is wrong is named."""

from __future__ import annotations

import json

import pytest

from odradek.base.errors import InvalidReplicaAssignmentError
from odradek.base.types import TopicPartition
from odradek.cli.reassign.plan_files import PlanFileError, parse_plan, plan_text, plan_value

TARGETS = {TopicPartition("orders", 1): (2, 3), TopicPartition("orders", 0): (1, 2)}


def test_a_written_plan_can_be_read() -> None:
    text = plan_text(TARGETS)
    assert parse_plan(text.encode(), source="plan.json") == TARGETS
    assert json.loads(text) == plan_value(TARGETS)
    assert text.splitlines()[1] == '  {"topic": "orders", "partition": 0, "replicas": [1, 2]},'


def test_a_plan_in_yaml_and_one_of_kafka_can_be_read() -> None:
    yaml = b"---\nversion: 1\npartitions:\n- topic: a\n  partition: 0\n  replicas: [4]\n"
    assert parse_plan(yaml, source="plan.yaml") == {TopicPartition("a", 0): (4,)}
    of_kafka = b'{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[4],"log_dirs":["any"]}]}'
    assert parse_plan(of_kafka, source="plan.json") == {TopicPartition("a", 0): (4,)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "p is neither JSON nor YAML"),
        ("[]", '"version": 1'),
        ('{"version": 2}', '"version": 1'),
        ('{"version": 1, "partitions": []}', "at least one partition"),
        ('{"version": 1, "partitions": [3]}', "entry 1 of the partitions is not an object"),
        ('{"version": 1, "partitions": [{"partition": 0, "replicas": [1]}]}', '"topic" must be a name'),
        ('{"version": 1, "partitions": [{"topic": "a", "partition": true, "replicas": [1]}]}', '"partition" must'),
        ('{"version": 1, "partitions": [{"topic": "a", "partition": 0, "replicas": [-1]}]}', '"replicas" must be'),
    ],
)
def test_what_is_not_a_plan_is_named(text: str, words: str) -> None:
    with pytest.raises(PlanFileError, match=r"^p") as raised:
        parse_plan(text.encode(), source="p")
    assert words in str(raised.value)


def test_a_partition_needs_different_brokers_and_occurs_once() -> None:
    row = {"topic": "a", "partition": 0, "replicas": [1, 1]}
    with pytest.raises(InvalidReplicaAssignmentError, match="duplicate"):
        parse_plan(json.dumps({"version": 1, "partitions": [row]}).encode(), source="p")
    row["replicas"] = [1]
    with pytest.raises(PlanFileError, match="p: a-0 occurs twice"):
        parse_plan(json.dumps({"version": 1, "partitions": [row, row]}).encode(), source="p")
