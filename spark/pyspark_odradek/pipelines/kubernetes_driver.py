"""Runs an application of this package as a Spark driver in this pod. The image's arguments `run` and `pipeline` use it.

It replaces itself with spark-submit. The environment variables POD_NAME, POD_NAMESPACE, POD_IP and IMAGE describe the
pod; without them, the tasks run in the driver itself.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NoReturn

from odradek.base.errors import ConfigError
from pyspark_odradek.pipelines import pipeline_spec
from pyspark_odradek.pipelines.driver_command import DriverPod, executor_template, submit_command
from pyspark_odradek.pipelines.pipeline_spec import SparkResources

PIPELINE_JOB: Final = "pyspark_odradek.pipelines.pipeline_job"

_DESCRIPTION: Final = """Run an application as a Spark driver in this pod, with executors in pods of their own.

The application is a Python module with its arguments. With --spec, it is the job of a pipeline, and the executors are
those of its specification."""

_EPILOG: Final = """examples:
  kubernetes_driver --executors 2 pyspark_odradek.pipelines.load --bootstrap-servers demo-kafka-bootstrap:9092 \\
      --topic departures --output s3a://bucket/departures
  kubernetes_driver --executors 0:4 --volume archive:/archive --same-node --label job=load MODULE ...
  kubernetes_driver --spec /etc/pipeline/pipeline.json --status-port 9405"""


def main(argv: list[str] | None = None) -> NoReturn:
    """Replace this process with spark-submit, or exit with a message and the code 2 if the arguments are wrong."""
    arguments = parser().parse_args(argv)
    try:
        command = driver(arguments, os.environ, Path(tempfile.gettempdir()))
    except ConfigError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    sys.stdout.flush()
    os.execvp(command[0], command)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    made = argparse.ArgumentParser(
        prog="kubernetes_driver",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--spec", type=Path, metavar="FILE", help="run this pipeline instead of a module")
    made.add_argument("--status-port", type=int, metavar="PORT", help="with --spec: port of /status and /metrics")
    made.add_argument(
        "--executors", metavar="N|MIN:MAX", help="number of executors, or bounds for dynamic allocation (default: 1)"
    )
    made.add_argument("--executor-memory", metavar="SIZE", help="memory of an executor, such as 2g (default: 1g)")
    made.add_argument("--executor-cores", type=int, metavar="N", help="tasks per executor at a time (default: 1)")
    made.add_argument("--executor-cpu", metavar="CPU", help="requested CPU of an executor, such as 500m")
    made.add_argument("--driver-memory", metavar="SIZE", help="heap of the driver (default: 1g)")
    made.add_argument(
        "--executor-template",
        metavar="FILE",
        help="pod template of executors, instead of one made of --volume, --label and --same-node",
    )
    made.add_argument(
        "--volume",
        action="append",
        default=[],
        metavar="CLAIM:PATH",
        type=_pair(":"),
        help="PersistentVolumeClaim to mount in executors",
    )
    made.add_argument(
        "--label", action="append", default=[], metavar="NAME=VALUE", type=_pair("="), help="label of executors"
    )
    made.add_argument(
        "--same-node",
        action="store_true",
        help="place executors on the node of the driver, whose pod has the same labels",
    )
    made.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", type=_pair("="), help="a setting of Spark"
    )
    made.add_argument("application", nargs=argparse.REMAINDER, metavar="MODULE ...", help="module and its arguments")
    return made


def _pair(separator: str) -> Callable[[str], tuple[str, str]]:
    def split(text: str) -> tuple[str, str]:
        name, found, value = text.partition(separator)
        if not found or not name:
            raise argparse.ArgumentTypeError(f"{text!r} has no {separator!r} between two parts")
        return name, value

    return split


def driver(arguments: argparse.Namespace, environment: Mapping[str, str], folder: Path) -> list[str]:
    """Return the command of the driver; writes the pod template of the executors into `folder` if one is needed.

    Raises `ConfigError` if arguments, specification or environment are wrong.
    """
    pod = DriverPod.of(environment)
    resources, application = _resources(arguments), list(arguments.application)
    if arguments.spec is not None:
        if application:
            raise ConfigError("--spec runs a pipeline: a module cannot be given too")
        resources = _of_spec(arguments.spec, resources)
        port = [] if arguments.status_port is None else [f"--status-port={arguments.status_port}"]
        application = [PIPELINE_JOB, f"--spec={arguments.spec}", *port]
    if not application:
        raise ConfigError("an argument is missing: a module, or --spec FILE")
    template = arguments.executor_template
    if pod is not None and template is None:
        if arguments.same_node and not arguments.label:
            raise ConfigError("--same-node needs a --label that the driver's pod has too")
        content = executor_template(
            pod, claims=dict(arguments.volume), labels=dict(arguments.label), same_node=arguments.same_node
        )
        path = folder / "executor-template.json"
        path.write_text(json.dumps(content, indent=1), encoding="utf-8")
        template = str(path)
    return submit_command(pod, resources, _file(application[0]), application[1:], template=template)


def _file(module: str) -> str:
    try:
        found = find_spec(module)
    except ModuleNotFoundError:
        found = None
    if found is None or found.origin is None:
        raise ConfigError(f"there is no module {module}")
    return found.origin


def _of_spec(path: Path, given: SparkResources) -> SparkResources:
    """Return the resources in a specification, with the settings of --conf in addition."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--spec {path} cannot be read: {error.strerror}") from None
    found = pipeline_spec.parse(text).resources
    return replace(found, conf={**found.conf, **given.conf})


def _resources(arguments: argparse.Namespace) -> SparkResources:
    standard = SparkResources()
    low, _, high = (arguments.executors or "1").partition(":")
    high = high or low
    if not (low.isdecimal() and high.isdecimal() and int(low) <= int(high) and int(high) > 0):
        raise ConfigError(f"--executors {arguments.executors} is not allowed: it must be a number such as 2, or 0:4")
    return SparkResources(
        driver_memory=arguments.driver_memory or standard.driver_memory,
        executor_memory=arguments.executor_memory or standard.executor_memory,
        executor_cores=arguments.executor_cores or standard.executor_cores,
        executor_cpu=arguments.executor_cpu,
        min_executors=int(low),
        max_executors=int(high),
        conf=dict(arguments.conf),
    )


if __name__ == "__main__":
    main()
