"""The data source itself: what PySpark finds under the name `odradek` and asks for a schema and readers.

Spark's options enter; readers leave. Invariant: options are checked in `schema`, so that a mistake is told at `load()`
and nothing has been opened by then.
"""

from __future__ import annotations

import logging

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from odradek.base.errors import ConfigError
from pyspark_odradek import options as source_options
from pyspark_odradek.reader import BatchReader
from pyspark_odradek.schema import row_schema
from pyspark_odradek.stream import StreamReader

log = logging.getLogger(__name__)


class DefaultSource(DataSource):
    """`format("odradek")`. PySpark finds this class by its name in every package called `pyspark_...`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "odradek"

    def schema(self) -> StructType:
        """The fixed schema; `ConfigError` when an option is wrong."""
        options = source_options.parse(self.options)
        for warning in options.warnings:
            log.warning("%s", warning)
        return row_schema(include_headers=options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader for a batch query."""
        return BatchReader(self._checked(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A reader for a streaming query."""
        return StreamReader(self._checked(schema))

    def _checked(self, schema: StructType) -> source_options.SourceOptions:
        """The options; `ConfigError` when the user gave a schema of their own, which Spark would pass on unseen."""
        options = source_options.parse(self.options)
        expected = row_schema(include_headers=options.include_headers)
        if schema != expected:
            raise ConfigError(
                f"a schema of your own is not allowed: the source has a fixed one, {expected.simpleString()}"
            )
        return options
