"""Arguments of the jobs, and the extraction of the error message from Spark's long reports."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import PySparkException

from odradek.base.errors import ConfigError
from odradek_demo import departures_windows
from pyspark_odradek.pipelines import archive
from pyspark_odradek.pipelines.application import argument_parser, cause, run, source_options

ACCOUNT = """[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):
  File "worker.py", line 1, in main
    reader.partitions()
KeyError: 'a'
During handling of the above exception, another exception occurred:
  File "lookup.py", line 9, in _assigned
odradek.base.errors.UnknownTopicOrPartitionError: there is no topic departures
 SQLSTATE: 38000
Logical Plan:
~WriteToMicroBatchDataSourceV1 ForeachBatchSink
"""


def test_the_sentence_of_a_python_error() -> None:
    assert cause(ACCOUNT) == "there is no topic departures"
    assert cause("[TABLE_NOT_FOUND] no such table.\nmore") == "[TABLE_NOT_FOUND] no such table."


def test_options_of_the_source() -> None:
    parser = argument_parser("d", "e")
    given = [
        "--bootstrap-servers",
        "h:1",
        "--topic",
        "t",
        "--option",
        "kafka.client.id=a=b",
        "--option",
        "minPartitions=3",
    ]
    assert source_options(parser.parse_args(given)) == {
        "kafka.bootstrap.servers": "h:1",
        "subscribe": "t",
        "kafka.client.id": "a=b",
        "minPartitions": "3",
    }
    with pytest.raises(SystemExit) as caught:
        parser.parse_args([*given, "--option", "nonsense"])
    assert caught.value.code == 2


def test_a_job_tells_its_result_or_why_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(lambda: {"rows": 5}) == 0
    assert json.loads(capsys.readouterr().out) == {"event": "result", "rows": 5}

    def wrong() -> dict[str, int]:
        raise ConfigError("subscribe is wrong")

    def spark() -> dict[str, int]:
        raise PySparkException(ACCOUNT)

    for job, message in ((wrong, "subscribe is wrong"), (spark, "there is no topic departures")):
        assert run(job) == 1
        output = capsys.readouterr()
        assert (output.out, output.err.splitlines()[-1]) == ("", f"error: {message}")


@pytest.mark.parametrize("job", [archive, departures_windows])
def test_help_teaches_with_an_example(job: object, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        job.main(["--help"])  # type: ignore[attr-defined]
    assert caught.value.code == 0
    assert "spark-submit" in capsys.readouterr().out


def test_a_job_checks_its_options_before_spark_starts(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--bootstrap-servers", "nowhere", "--topic", "t", "--output", str(tmp_path / "o")]
    assert archive.main(arguments) == 1
    assert departures_windows.main([*arguments, "--checkpoint", str(tmp_path / "c")]) == 1
    assert "bootstrap.servers" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
