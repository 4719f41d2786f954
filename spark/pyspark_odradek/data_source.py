"""The data source: PySpark finds it by the name `odradek` and requests its schema, readers and writers.

Invariant: options and columns are validated when Spark plans a query, before any connection is opened: in `schema` for
`load()`, and in `writer` and `streamWriter`.

Spark starts one Python process to create sources and another one to plan queries, and uses them again. The first query
of a session waits for their imports, so the readers and writers, which need most modules, are imported when Spark asks
for one.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from uuid import uuid4

from pyspark.sql import SparkSession, is_remote
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from odradek.base.errors import ConfigError
from pyspark_odradek.decoding.row_schema import RowSchema
from pyspark_odradek.formats.value_formats import value_decoder
from pyspark_odradek.options import source_options
from pyspark_odradek.options.client_options import with_config_file
from pyspark_odradek.options.sink_options import SinkOptions, parse_sink
from pyspark_odradek.sink.sink_schema import SinkColumns, sink_columns
from pyspark_odradek.worker_heap import freeze_modules

log = logging.getLogger(__name__)


class DefaultSource(DataSource):
    """`format("odradek")`. PySpark finds this class by its name in every package called `pyspark_...`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "odradek"

    def schema(self) -> StructType:
        """Return all columns. Raises `ConfigError` if an option is invalid."""
        freeze_modules()
        options = source_options.parse(with_config_file(self.options))
        for warning in options.warnings:
            log.warning("%s", warning)
        return self._columns(options).spark

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader for a batch query."""
        from pyspark_odradek.source.batch_reader import batch_reader

        options, columns = self._checked(schema)
        return batch_reader(options, columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a reader for a streaming query."""
        from pyspark_odradek.source.stream_reader import StreamReader

        options, columns = self._checked(schema)
        return StreamReader(options, columns)

    def _checked(self, schema: StructType) -> tuple[source_options.SourceOptions, RowSchema]:
        """Return options and columns. A schema of the user selects columns; Spark does not check it.

        Raises `ConfigError` if an option is invalid or the schema has anything but columns of the source.
        """
        freeze_modules()
        options = source_options.parse(with_config_file(self.options))
        return options, self._columns(options).project(schema)

    def _columns(self, options: source_options.SourceOptions) -> RowSchema:
        """Return all columns of the source, with the decoder of the value format."""
        decoder = value_decoder(self.options)
        value_type = None if decoder is None else decoder.value_type
        return replace(RowSchema.full(include_headers=options.include_headers, value_type=value_type), decoder=decoder)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer for a batch query with these columns. Raises `ConfigError` if it cannot be written."""
        if overwrite:
            raise ConfigError("Save mode Overwrite not allowed for Kafka. The only allowed save mode is Append")
        options, columns = self._checked_sink(schema)
        if options.exactly_once is not None:
            from pyspark_odradek.sink.exactly_once_writers import ExactlyOnceBatchWriter, TransactionalWriter

            return ExactlyOnceBatchWriter(TransactionalWriter(options, columns), str(uuid4()))
        from pyspark_odradek.sink.sink_writers import BatchWriter
        from pyspark_odradek.sink.task_writer import TaskWriter

        return BatchWriter(TaskWriter(options, columns))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """Return a writer for a stream with these columns; `overwrite` (complete mode) makes no difference."""
        options, columns = self._checked_sink(schema)
        if options.exactly_once is not None:
            from pyspark_odradek.sink.exactly_once_writers import ExactlyOnceStreamWriter, TransactionalWriter

            return ExactlyOnceStreamWriter(TransactionalWriter(options, columns))
        from pyspark_odradek.sink.sink_writers import StreamWriter
        from pyspark_odradek.sink.task_writer import TaskWriter

        return StreamWriter(TaskWriter(options, columns))

    def _checked_sink(self, schema: StructType) -> tuple[SinkOptions, SinkColumns]:
        options = parse_sink(with_config_file(self.options))
        for warning in options.warnings:
            log.warning("%s", warning)
        return options, sink_columns(schema, options.topic)


def register(spark: SparkSession) -> None:
    """Let Spark find the format in the queries that this thread makes with the session. May be called again.

    Spark's own search starts a Python process that has to connect within ten seconds. On a busy machine it does not,
    and then the session answers DATA_SOURCE_NOT_FOUND as long as it lives. A write also has this error in each thread
    of the driver that has no active session, because Spark looks for formats written in Python only in the active one.
    """
    if is_remote():
        spark.dataSource.register(DefaultSource)
        return
    # The one public function that makes a session the active one of the thread. The data frame is not used.
    spark.createDataFrame([], "unused int")
    if not spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists(DefaultSource.name()):
        spark.dataSource.register(DefaultSource)
