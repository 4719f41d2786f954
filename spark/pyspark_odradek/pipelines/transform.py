"""Transforms topics into a topic with SQL. A `spark-submit` application."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any, Final

from odradek.base.errors import ConfigError
from pyspark_odradek.pipelines.application import OpenSession, argument_parser, name_and_value, run, session
from pyspark_odradek.pipelines.pipeline_query import check_source, target_writer, transformed
from pyspark_odradek.pipelines.pipeline_spec import (
    GUARANTEES,
    OUTPUT_MODES,
    VALUE_FORMATS,
    PipelineSource,
    PipelineSpec,
    PipelineTarget,
    SparkResources,
    Transformation,
)
from pyspark_odradek.pipelines.stream_runs import add_stream_arguments, run_stream

_DESCRIPTION: Final = """Transform the records of topics into records of another topic, with a query in SQL.

By default it reads everything that is new since the last run, and ends. With --continuous it runs until it is stopped.
--checkpoint keeps the offsets and the state: use a separate one for each target."""

_EPILOG: Final = """The query reads the view `source`, whose columns are those of the source. Its result has the column
value, and optionally key, headers and partition. With --delivery-guarantee exactly-once, consumers with
isolation.level=read_committed see each result once, also after a crash.

example: only late flights, with the delay as the value
  spark-submit transform.py --bootstrap-servers 127.0.0.1:9092 --topic departures --to-topic late \\
      --checkpoint s3a://bucket/late-checkpoint --format json --schema "dep_delay DOUBLE" \\
      --sql "SELECT key, string(value.dep_delay) AS value FROM source WHERE value.dep_delay > 60\""""


def main(argv: list[str] | None = None, *, open_session: OpenSession = session) -> int:
    """Run the application and return its exit code."""
    parser = argument_parser(_DESCRIPTION, _EPILOG)
    parser.add_argument("--format", choices=VALUE_FORMATS, help="format of the values; otherwise value has the bytes")
    parser.add_argument("--schema", metavar="SCHEMA", help="columns of the values, such as 'id INT', or an Avro schema")
    query = parser.add_mutually_exclusive_group(required=True)
    query.add_argument("--sql", metavar="QUERY", help="the query")
    query.add_argument("--sql-file", metavar="FILE", type=Path, help="a file with the query")
    parser.add_argument("--watermark", metavar="COLUMN=DELAY", type=name_and_value, help="for windows and joins")
    add_stream_arguments(parser)
    target = parser.add_argument_group("target")
    target.add_argument("--to-topic", required=True, metavar="TOPIC", help="the topic to write to")
    target.add_argument("--delivery-guarantee", choices=GUARANTEES, default=GUARANTEES[0], help="default: %(default)s")
    target.add_argument("--output-mode", choices=OUTPUT_MODES, default="append", help="default: %(default)s")
    target.add_argument(
        "--to-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        type=name_and_value,
        help="an option of the sink, such as kafka.compression.type=zstd; may be repeated",
    )
    arguments = parser.parse_args(argv)
    return run(
        lambda: _transform(arguments, open_session),
        lambda result: f"Transformed {result['rows']:,} records in {result['seconds']} s.",
    )


def _transform(arguments: argparse.Namespace, open_session: OpenSession) -> dict[str, Any]:
    began = time.monotonic()
    spec = _spec(arguments)
    check_source(spec)
    with open_session(spec.name) as spark:
        result = run_stream(spark, target_writer(spec, transformed(spark, spec)), arguments)
    return {**result, "seconds": round(time.monotonic() - began, 3)}


def _spec(arguments: argparse.Namespace) -> PipelineSpec:
    """Return the arguments as a pipeline."""
    column, delay = arguments.watermark or (None, None)
    return PipelineSpec(
        name=f"transform {arguments.topic or arguments.pattern} to {arguments.to_topic}",
        bootstrap_servers=arguments.bootstrap_servers,
        source=PipelineSource(
            topics=tuple(arguments.topic.split(",")) if arguments.topic else (),
            pattern=arguments.pattern,
            value_format=arguments.format,
            schema=arguments.schema,
            options=dict(arguments.option),
        ),
        transformation=Transformation(sql=_sql(arguments), watermark_column=column, watermark_delay=delay),
        target=PipelineTarget(
            topic=arguments.to_topic,
            guarantee=arguments.delivery_guarantee,
            output_mode=arguments.output_mode,
            options=dict(arguments.to_option),
        ),
        trigger_seconds=None,
        checkpoint=arguments.checkpoint,
        resources=SparkResources(),
    )


def _sql(arguments: argparse.Namespace) -> str:
    if arguments.sql is not None:
        return str(arguments.sql)
    try:
        return str(arguments.sql_file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--sql-file {arguments.sql_file} cannot be read: {error.strerror}") from None


if __name__ == "__main__":
    sys.exit(main())
