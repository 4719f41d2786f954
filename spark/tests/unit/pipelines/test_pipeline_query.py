"""The options of the source that follow from the specification of a pipeline."""

from __future__ import annotations

import json

import pytest

from odradek.base.errors import ConfigError
from pyspark_odradek.pipelines.pipeline_query import check_source, source_options
from pyspark_odradek.pipelines.pipeline_spec import PipelineSpec, parse

AVRO = '{"type": "record", "name": "r", "fields": [{"name": "x", "type": "int"}]}'


def spec(**source: object) -> PipelineSpec:
    return parse(
        json.dumps(
            {
                "name": "p",
                "bootstrapServers": "b:9092",
                "source": source,
                "target": {"topic": "t"},
                "mode": "batch",
                "checkpoint": "/c",
            }
        )
    )


def test_topics_formats_and_options() -> None:
    json_source = spec(topics=["a", "b"], format="json", schema="x INT", options={"startingOffsets": "latest"})
    assert source_options(json_source) == {
        "kafka.bootstrap.servers": "b:9092",
        "startingOffsets": "latest",
        "subscribe": "a,b",
        "valueFormat": "json",
        "valueSchema": "x INT",
    }
    avro_source = spec(pattern="a.*", format="avro", schema=AVRO)
    assert source_options(avro_source) == {
        "kafka.bootstrap.servers": "b:9092",
        "startingOffsets": "earliest",
        "subscribePattern": "a.*",
        "valueFormat": "avro",
        "valueAvroSchema": AVRO,
    }
    for each in (json_source, avro_source):
        check_source(each)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"topics": ["a"], "format": "json", "schema": "x NOTHING"}, "valueSchema"),
        ({"topics": ["a"], "format": "avro", "schema": "x INT"}, "valueAvroSchema"),
        ({"topics": ["a"], "options": {"minPartitions": "no"}}, "minPartitions"),
    ],
)
def test_mistakes_are_found_before_spark_starts(source: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_source(spec(**source))
