"""Registration of the format where Spark does not find it, and what its processes import.

`local/test_sink.py` registers it with a real Spark.
"""

from __future__ import annotations

import subprocess
import sys
from unittest.mock import MagicMock, call

import pytest

from pyspark_odradek import DefaultSource, data_source, register


@pytest.mark.parametrize("found", [True, False])
def test_the_format_is_registered_if_the_search_of_spark_failed(found: bool) -> None:
    spark = MagicMock()
    spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists.side_effect = {"odradek": found}.get
    register(spark)
    assert spark.dataSource.register.call_args_list == ([] if found else [call(DefaultSource)])


def test_a_client_of_spark_connect_has_only_the_public_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_source, "is_remote", lambda: True)
    spark = MagicMock(spec=["dataSource"])
    register(spark)
    assert spark.dataSource.register.call_args_list == [call(DefaultSource)]


def test_the_processes_that_plan_a_query_import_only_what_reading_needs() -> None:
    # Spark starts such a process for each query, so each import is a part of the time of every query.
    program = (
        "import sys\n"
        "from pyspark_odradek.data_source import DefaultSource\n"
        "source = DefaultSource({'kafka.bootstrap.servers': '127.0.0.1:1', 'subscribe': 't'})\n"
        "schema = source.schema()\n"
        "print('CREATED', [name for name in ('odradek.client.blocking', 'pyspark_odradek.sink.sink_writers')"
        " if name in sys.modules])\n"
        "source.reader(schema)\n"
        "heavy = ('cryptography', 'javaproperties', 'jwt', 'prometheus_client', 'pyarrow.compute', 'urllib.request',"
        " 'odradek.client.producer.producer')\n"
        "print('PLANNED', [name for name in heavy if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == ["CREATED []", "PLANNED []"]
