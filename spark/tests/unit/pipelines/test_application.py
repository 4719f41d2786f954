"""Arguments of the jobs, and the extraction of the error message from Spark's long reports."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import PySparkException

from odradek.base.errors import ConfigError
from pyspark_odradek.pipelines import load, mirror_from_files, mirror_to_files, pipeline_job, rollup, transform
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

    def disk() -> dict[str, int]:
        raise PermissionError(13, "Permission denied", "/files")

    sentences = ("subscribe is wrong", "there is no topic departures", "[Errno 13] Permission denied: '/files'")
    for job, message in zip((wrong, spark, disk), sentences, strict=True):
        assert run(job) == 1
        output = capsys.readouterr()
        assert (output.out, output.err.splitlines()[-1]) == ("", f"error: {message}")


@pytest.mark.parametrize("job", [load, rollup, transform, mirror_to_files, mirror_from_files, pipeline_job])
def test_help_teaches_with_an_example(job: object, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        job.main(["--help"])  # type: ignore[attr-defined]
    assert caught.value.code == 0
    assert "spark-submit" in capsys.readouterr().out


def test_a_job_checks_its_options_before_spark_starts(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--bootstrap-servers", "nowhere", "--topic", "t", "--output", str(tmp_path / "o")]
    assert load.main(arguments) == 1
    stream = [*arguments, "--checkpoint", str(tmp_path / "c")]
    assert mirror_to_files.main(stream) == 1
    assert transform.main([*arguments[:4], *stream[6:], "--sql", "SELECT 1", "--to-topic", "u"]) == 1
    assert mirror_from_files.main([*arguments[:2], "--input", str(tmp_path / "o")]) == 1
    assert rollup.main([*stream, "--window", "1 hour", "--aggregate", "count(*) AS n"]) == 1
    assert "bootstrap.servers" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
