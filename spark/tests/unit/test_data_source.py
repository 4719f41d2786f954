"""Registration of the format where Spark does not find it. `local/test_sink.py` does it with a real Spark."""

from __future__ import annotations

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
