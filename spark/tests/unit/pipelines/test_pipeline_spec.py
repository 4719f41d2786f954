"""The specification of a pipeline: what is accepted, and the path in the error of each mistake."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyspark_odradek.pipelines.pipeline_spec import PipelineSpecError, parse

GOOD: dict[str, Any] = {
    "name": "p",
    "bootstrapServers": "b:9092",
    "source": {"topics": ["a", "b"], "format": "json", "schema": "x INT", "options": {"minPartitions": "3"}},
    "transformation": {"sql": "SELECT * FROM source", "watermark": {"column": "timestamp", "delay": "1 hour"}},
    "target": {"path": "s3a://bucket/t", "format": "parquet", "partitionBy": ["date"]},
    "mode": {"streaming": {"triggerSeconds": 5}},
    "checkpoint": "/checkpoint",
    "driver": {"memory": "2g"},
    "executors": {"minInstances": 0, "maxInstances": 4, "memory": "512m", "cores": 2, "cpu": "500m"},
    "sparkConf": {"spark.ui.enabled": "false"},
}
ABSENT = object()


def changed(path: str, value: object) -> str:
    """The good specification with another value at a path."""
    spec = json.loads(json.dumps(GOOD))
    *parents, last = path.split(".")
    place = spec
    for name in parents:
        place = place.setdefault(name, {})
    if value is ABSENT:
        del place[last]
    else:
        place[last] = value
    return json.dumps(spec)


def test_everything_is_taken() -> None:
    spec = parse(json.dumps(GOOD))
    assert (spec.name, spec.bootstrap_servers, spec.checkpoint) == ("p", "b:9092", "/checkpoint")
    assert spec.trigger_seconds == 5
    assert (spec.source.topics, spec.source.value_format, spec.source.schema) == (("a", "b"), "json", "x INT")
    assert spec.source.options == {"minPartitions": "3"}
    assert (spec.transformation.watermark_column, spec.transformation.watermark_delay) == ("timestamp", "1 hour")
    assert (spec.target.path, spec.target.partition_by, spec.target.topic) == ("s3a://bucket/t", ("date",), None)
    resources = spec.resources
    assert (resources.driver_memory, resources.executor_memory, resources.executor_cpu) == ("2g", "512m", "500m")
    assert (resources.min_executors, resources.max_executors, resources.executor_cores) == (0, 4, 2)
    assert resources.conf == {"spark.ui.enabled": "false"}


def test_little_is_needed() -> None:
    spec = parse(
        json.dumps(
            {
                "name": "p",
                "bootstrapServers": "b:9092",
                "source": {"pattern": "dep.*"},
                "target": {"topic": "t"},
                "mode": "batch",
                "checkpoint": "/c",
            }
        )
    )
    assert (spec.source.pattern, spec.target.topic, spec.target.guarantee) == ("dep.*", "t", "at-least-once")
    assert (spec.trigger_seconds, spec.transformation.sql, spec.target.output_mode) == (None, None, "append")
    assert (spec.resources.min_executors, spec.resources.max_executors) == (1, 1)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("name", ABSENT, "name: is missing"),
        ("bootstrapServers", 5, "bootstrapServers: must be a text"),
        ("source", ABSENT, "source: is missing"),
        ("source.topics", ["a", 1], "source.topics[1]: must be a text"),
        ("source.topics", [], "source.topics: must be a list that is not empty"),
        ("source.pattern", "a.*", "source: needs exactly one of topics and pattern"),
        ("source.topics", ABSENT, "source: needs exactly one of topics and pattern"),
        ("source.format", "xml", "source.format: must be one of json, avro, csv, string, not xml"),
        ("source.schema", ABSENT, "source.schema: is missing"),
        ("source.format", "string", "source.schema: needs a format with columns"),
        ("source.options", {"minPartitions": 3}, "source.options[minPartitions]: must be a text, not 3"),
        ("source.topic", "a", "source.topic: is unknown; allowed are format, options, pattern, schema, topics"),
        ("transformation.watermark.delay", ABSENT, "transformation.watermark.delay: is missing"),
        ("transformation.query", "x", "transformation.query: is unknown"),
        ("transformation", [], "transformation: must be an object"),
        ("target.topic", "t", "target: needs exactly one of topic and path"),
        ("target.deliveryGuarantee", "exactly-once", "target.deliveryGuarantee: is for a topic only"),
        ("target", {"topic": "t", "partitionBy": ["a"]}, "target.partitionBy: is for a path only"),
        ("target", {"topic": "t", "deliveryGuarantee": "twice"}, "target.deliveryGuarantee: must be one of"),
        ("target.format", "csv", "target.format: must be one of parquet"),
        ("target.outputMode", "update", "target.outputMode: files can only be appended"),
        ("mode", "stream", 'mode: must be "batch" or'),
        ("mode", {}, "mode.streaming: is missing"),
        ("mode", {"streaming": {"triggerSeconds": "5"}}, "mode.streaming.triggerSeconds: must be a number"),
        ("mode", {"streaming": {"seconds": 5}}, "mode.streaming.seconds: is unknown"),
        ("checkpoint", " ", "checkpoint: must be a text that is not empty"),
        ("driver.memory", "much", "driver.memory: must be a size of Spark"),
        ("executors.instances", 2, "executors: needs either instances, or both"),
        ("executors.maxInstances", ABSENT, "executors: needs either instances, or both"),
        ("executors.minInstances", 5, "executors.minInstances: must not be greater than maxInstances, 4"),
        ("executors.cores", 0, "executors.cores: must be a whole number of at least 1, not 0"),
        ("executors.cores", True, "executors.cores: must be a whole number"),
        ("schedule", "x", "schedule: is unknown; allowed are bootstrapServers, checkpoint"),
    ],
)
def test_an_error_names_the_path(path: str, value: object, message: str) -> None:
    with pytest.raises(PipelineSpecError) as caught:
        parse(changed(path, value))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("text", ["{", "[]", "null"])
def test_only_an_object_is_a_specification(text: str) -> None:
    with pytest.raises(PipelineSpecError, match="the specification"):
        parse(text)
