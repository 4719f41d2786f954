"""Shared code of the jobs: arguments of the source, a session, and progress reports.

A job writes one JSON object per line to standard output: `{"event": "progress", ...}` while Spark works and one
`{"event": "result", ...}` at the end. Standard error has Spark's own output, and at the end one sentence for people: a
summary, or `error: ...` with exit code 1. Wrong arguments have exit code 2.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from odradek.base.errors import OdradekError
from pyspark_odradek import register

_PYTHON_ERROR: Final = re.compile(r"^[\w.]*(?:Error|Exception): (.+)$", re.MULTILINE)
_POLL_SECONDS: Final = 0.5


def job_parser(description: str, epilog: str) -> argparse.ArgumentParser:
    """Return a parser without arguments that keeps the lines of its texts."""
    return argparse.ArgumentParser(
        description=description, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def argument_parser(description: str, epilog: str) -> argparse.ArgumentParser:
    """Return a parser with the arguments of the source."""
    parser = job_parser(description, epilog)
    source = parser.add_argument_group("source")
    source.add_argument(
        "--bootstrap-servers", required=True, metavar="HOST:PORT,...", help="brokers to connect to first"
    )
    topics = source.add_mutually_exclusive_group(required=True)
    topics.add_argument("--topic", metavar="TOPIC,...", help="the topics to read")
    topics.add_argument(
        "--pattern", metavar="REGEX", help="a regular expression of the topics to read, also later ones"
    )
    source.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        type=name_and_value,
        help="another option of the odradek source, such as kafka.isolation.level=read_committed; may be repeated",
    )
    return parser


def name_and_value(text: str) -> tuple[str, str]:
    """Convert the text of an argument such as NAME=VALUE."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def source_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options of `format("odradek")` in the arguments."""
    selected = {"subscribe": arguments.topic} if arguments.topic else {"subscribePattern": arguments.pattern}
    return {"kafka.bootstrap.servers": arguments.bootstrap_servers, **selected, **dict(arguments.option)}


OpenSession = Callable[[str], AbstractContextManager[SparkSession]]
"""Opens a session with this name for a `with` block; tests pass one that is already open."""


@contextmanager
def session(name: str) -> Iterator[SparkSession]:
    """A Spark session in UTC that reports its stages; ends with the block."""
    spark = SparkSession.builder.appName(name).config("spark.sql.session.timeZone", "UTC").getOrCreate()
    register(spark)
    done = threading.Event()
    reporter = threading.Thread(target=_report_stages, args=(spark, done), name="progress", daemon=True)
    reporter.start()
    try:
        yield spark
    finally:
        done.set()
        reporter.join()
        spark.stop()


def tell(event: str, **values: object) -> None:
    """Write one line for the caller of the job."""
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


def run(
    job: Callable[[], dict[str, Any]],
    summary: Callable[[dict[str, Any]], str] | None = None,
    *,
    failed: Callable[[str], None] = lambda message: None,
) -> int:
    """Run `job`, report its result, and write the sentence of `summary` about it. Returns the exit code.

    `failed` is called with the message of an error.
    """
    try:
        result = job()
    except (OdradekError, OSError) as error:
        failed(str(error))
        return _fail(str(error))
    except PySparkException as error:
        message = cause(str(error))
        failed(message)
        return _fail(message)
    tell("result", **result)
    if summary is not None:
        sys.stderr.write(f"{summary(result)}\n")
    return 0


def _fail(message: str) -> int:
    sys.stderr.write(f"error: {message}\n")
    return 1


def cause(text: str) -> str:
    """Return the message of the innermost Python error in Spark's report of a failure, if there is one.

    Spark wraps an error of a Python source into its traceback, and that into plans and Java frames.
    """
    errors = _PYTHON_ERROR.findall(text)
    return errors[-1] if errors else text.strip().splitlines()[0]


def _report_stages(spark: SparkSession, done: threading.Event) -> None:
    """Report the tasks of running stages whenever their number changes."""
    tracker = spark.sparkContext.statusTracker()
    told: tuple[int, int] | None = None
    while not done.wait(_POLL_SECONDS):
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
        running = [stage for stage in stages if stage is not None]
        now = (sum(stage.numCompletedTasks for stage in running), sum(stage.numTasks for stage in running))
        if running and now != told:
            tell("progress", stage=running[0].name, done=now[0], of=now[1])
            told = now
