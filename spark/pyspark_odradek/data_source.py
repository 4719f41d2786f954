"""The data source: PySpark finds it by the name `odradek` and requests its schema and readers.

Invariant: options are validated in `schema`, so that `load()` reports mistakes, before any connection is opened.
"""

from __future__ import annotations

import logging

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from odradek.base.errors import ConfigError
from pyspark_odradek.decoding.row_batches import row_schema
from pyspark_odradek.options import source_options
from pyspark_odradek.options.client_options import with_config_file
from pyspark_odradek.source.batch_reader import BatchReader
from pyspark_odradek.source.stream_reader import StreamReader

log = logging.getLogger(__name__)


class DefaultSource(DataSource):
    """`format("odradek")`. PySpark finds this class by its name in every package called `pyspark_...`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "odradek"

    def schema(self) -> StructType:
        """Return the fixed schema. Raises `ConfigError` if an option is invalid."""
        options = source_options.parse(with_config_file(self.options))
        for warning in options.warnings:
            log.warning("%s", warning)
        return row_schema(include_headers=options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader for a batch query."""
        return BatchReader(self._checked(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a reader for a streaming query."""
        return StreamReader(self._checked(schema))

    def _checked(self, schema: StructType) -> source_options.SourceOptions:
        """Return the options. Raises `ConfigError` for a schema of the user, which Spark would not validate."""
        options = source_options.parse(with_config_file(self.options))
        expected = row_schema(include_headers=options.include_headers)
        if schema != expected:
            raise ConfigError(
                f"a schema of your own is not allowed: the source has a fixed one, {expected.simpleString()}"
            )
        return options
