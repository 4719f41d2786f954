"""Plans of reassignments as files, in the format of Kafka's kafka-reassign-partitions. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import yaml

from odradek.base.errors import OdradekError
from odradek.base.topic_rules import check_replicas
from odradek.base.types import TopicPartition


class PlanFileError(OdradekError):
    """A file is not a plan of a reassignment."""


def plan_value(targets: Mapping[TopicPartition, Sequence[int]]) -> dict[str, object]:
    """Return a plan for JSON."""
    return {
        "version": 1,
        "partitions": [
            {"topic": name.topic, "partition": name.partition, "replicas": list(replicas)}
            for name, replicas in sorted(targets.items())
        ],
    }


def plan_text(targets: Mapping[TopicPartition, Sequence[int]]) -> str:
    """Return the content of a plan file: JSON with one line for each partition."""
    rows = plan_value(targets)["partitions"]
    assert isinstance(rows, list)
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    return f'{{"version": 1, "partitions": [\n{lines}\n]}}\n'


def parse_plan(text: bytes, *, source: str) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas of each partition of a plan file in JSON or YAML.

    `source` is the name of the file for messages. Raises `PlanFileError`, and `InvalidReplicaAssignmentError` if a
    partition has no replicas or a broker twice.
    """
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise PlanFileError(f"{source} is neither JSON nor YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict) or document.get("version") != 1:
        raise PlanFileError(f'{source} is not a plan: it must be an object with "version": 1')
    rows = document.get("partitions")
    if not isinstance(rows, list) or not rows:
        raise PlanFileError(f'{source} is not a plan: "partitions" must be a list with at least one partition')
    targets: dict[TopicPartition, tuple[int, ...]] = {}
    for number, row in enumerate(rows, 1):
        name, replicas = _parsed_row(row, f"{source}: entry {number} of the partitions")
        if name in targets:
            raise PlanFileError(f"{source}: {name} occurs twice")
        check_replicas({name.partition: replicas})
        targets[name] = replicas
    return targets


def _parsed_row(row: Any, where: str) -> tuple[TopicPartition, tuple[int, ...]]:
    if not isinstance(row, dict):
        raise PlanFileError(f"{where} is not an object")
    topic, partition, replicas = row.get("topic"), row.get("partition"), row.get("replicas")
    if not isinstance(topic, str) or not topic:
        raise PlanFileError(f'{where}: "topic" must be a name')
    if not _is_id(partition):
        raise PlanFileError(f'{where}: "partition" must be a number from 0')
    if not isinstance(replicas, list) or not all(map(_is_id, replicas)):
        raise PlanFileError(f'{where}: "replicas" must be a list of broker ids')
    return TopicPartition(topic, partition), tuple(replicas)


def _is_id(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
