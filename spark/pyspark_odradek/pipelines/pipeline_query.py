"""The streaming query of a pipeline: source, transformation and target of its specification as DataFrame operations."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_odradek.formats.value_formats import value_decoder
from pyspark_odradek.options import source_options as source
from pyspark_odradek.options.client_options import with_config_file
from pyspark_odradek.pipelines.pipeline_spec import PipelineSpec

VIEW: Final = "source"
"""The view of the records that a transformation reads."""


def source_options(spec: PipelineSpec) -> dict[str, str]:
    """Return the options of the source. Those in the specification come before the defaults."""
    given = spec.source
    selected = {"subscribe": ",".join(given.topics)} if given.pattern is None else {"subscribePattern": given.pattern}
    schema_option = "valueAvroSchema" if given.value_format == "avro" else "valueSchema"
    typed = {"valueFormat": given.value_format, schema_option: given.schema}
    return {
        "kafka.bootstrap.servers": spec.bootstrap_servers,
        "startingOffsets": "earliest",
        **selected,
        **{name: value for name, value in typed.items() if value is not None},
        **given.options,
    }


def check_source(spec: PipelineSpec) -> None:
    """Raise `ConfigError` if an option of the source is invalid, before Spark starts."""
    options = with_config_file(source_options(spec))
    source.parse(options)
    value_decoder(options)


def transformed(spark: SparkSession, spec: PipelineSpec) -> DataFrame:
    """Return the rows of the target: the query over the view, or all columns of the source."""
    records = spark.readStream.format("odradek").options(**source_options(spec)).load()
    steps = spec.transformation
    if steps.watermark_column is not None and steps.watermark_delay is not None:
        records = records.withWatermark(steps.watermark_column, steps.watermark_delay)
    records.createOrReplaceTempView(VIEW)
    return records if steps.sql is None else spark.sql(steps.sql)


def target_writer(spec: PipelineSpec, rows: DataFrame) -> DataStreamWriter:
    """Return the writer of the target, without a trigger. Options of the specification come before the defaults."""
    target = spec.target
    writer = rows.writeStream.queryName(spec.name).outputMode(target.output_mode)
    if target.topic is None:
        writer = writer.format(target.file_format).option("path", target.path)
        if target.partition_by:
            writer = writer.partitionBy(*target.partition_by)
    else:
        writer = writer.format("odradek").options(
            **{
                "kafka.bootstrap.servers": spec.bootstrap_servers,
                "topic": target.topic,
                "deliveryGuarantee": target.guarantee,
            }
        )
    return writer.options(**target.options).option("checkpointLocation", spec.checkpoint)


def triggered(writer: DataStreamWriter, spec: PipelineSpec) -> DataStreamWriter:
    """Return the writer with the trigger of the mode: everything that is there, or micro-batches for ever."""
    if spec.trigger_seconds is None:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{round(spec.trigger_seconds * 1000)} milliseconds")
