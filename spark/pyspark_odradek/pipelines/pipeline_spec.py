"""The specification of a pipeline: JSON that the operator writes and `pipeline_job` runs. Pure functions.

`parse` takes the text of the file. An invalid field raises a `PipelineSpecError` that begins with the path of the
field, such as `source.topics[1]`. Unknown fields are refused. Format: docs/design/0029.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from odradek.base.errors import ConfigError

VALUE_FORMATS: Final = ("json", "avro", "csv", "string")
GUARANTEES: Final = ("at-least-once", "exactly-once")
OUTPUT_MODES: Final = ("append", "update", "complete")
_MEMORY: Final = re.compile(r"[1-9]\d*[kmgt]?b?", re.IGNORECASE)


class PipelineSpecError(ConfigError):
    """A field of a specification is missing or invalid. The message begins with its path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSource:
    """What to read: exactly one of `topics` and `pattern` is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    value_format: str | None = None
    """One of `VALUE_FORMATS`; None leaves values as bytes."""
    schema: str | None = None
    """Columns of the values as DDL, or for avro the Avro schema as JSON; needed by every format but `string`."""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformation:
    """A query over the view `source`, and the watermark of a column in it."""

    sql: str | None = None
    watermark_column: str | None = None
    watermark_delay: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTarget:
    """Where the rows go: exactly one of `topic` and `path` is set."""

    topic: str | None = None
    guarantee: str = GUARANTEES[0]
    path: str | None = None
    file_format: str = "parquet"
    partition_by: tuple[str, ...] = ()
    output_mode: str = OUTPUT_MODES[0]
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkResources:
    """Memory and executors of a Spark application.

    Sizes are Spark's, such as `1g`. `executor_cpu` is a request of Kubernetes, such as `500m`. If
    `min_executors` and `max_executors` differ, Spark allocates executors dynamically between them.
    """

    driver_memory: str = "1g"
    executor_memory: str = "1g"
    executor_cores: int = 1
    executor_cpu: str | None = None
    min_executors: int = 1
    max_executors: int = 1
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec:
    """A pipeline."""

    name: str
    bootstrap_servers: str
    source: PipelineSource
    transformation: Transformation
    target: PipelineTarget
    trigger_seconds: float | None
    """Interval of the micro-batches of a streaming pipeline; None for a batch pipeline, which ends."""
    checkpoint: str
    resources: SparkResources


class _Fields:
    """An object of the JSON. `done` checks that no field was left over."""

    def __init__(self, path: str, value: object) -> None:
        if not isinstance(value, dict):
            raise PipelineSpecError(f"{path or 'the specification'}: must be an object")
        self._path = path
        self._values = value
        self._taken: set[str] = set()

    def path(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name

    def wrong(self, name: str, reason: str) -> PipelineSpecError:
        return PipelineSpecError(f"{self.path(name)}: {reason}")

    def get(self, name: str) -> Any:
        self._taken.add(name)
        return self._values.get(name)

    def text(self, name: str) -> str | None:
        value = self.get(name)
        if value is not None and not (isinstance(value, str) and value.strip()):
            raise self.wrong(name, f"must be a text that is not empty, not {json.dumps(value)}")
        return value

    def needed(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise self.wrong(name, "is missing")
        return value

    def choice(self, name: str, allowed: tuple[str, ...]) -> str | None:
        value = self.text(name)
        if value is not None and value not in allowed:
            raise self.wrong(name, f"must be one of {', '.join(allowed)}, not {value}")
        return value

    def whole(self, name: str, *, low: int) -> int | None:
        value = self.get(name)
        if value is not None and (type(value) is not int or value < low):
            raise self.wrong(name, f"must be a whole number of at least {low}, not {json.dumps(value)}")
        return value

    def memory(self, name: str, default: str) -> str:
        value = self.text(name)
        if value is not None and not _MEMORY.fullmatch(value):
            raise self.wrong(name, f"must be a size of Spark such as 512m or 2g, not {value}")
        return value or default

    def texts(self, name: str) -> tuple[str, ...]:
        values = self.get(name)
        if values is None:
            return ()
        if not isinstance(values, list) or not values:
            raise self.wrong(name, "must be a list that is not empty")
        for number, value in enumerate(values):
            if not isinstance(value, str) or not value.strip():
                raise self.wrong(f"{name}[{number}]", f"must be a text that is not empty, not {json.dumps(value)}")
        return tuple(values)

    def options(self, name: str) -> dict[str, str]:
        values = self.get(name)
        if values is None:
            return {}
        if not isinstance(values, dict):
            raise self.wrong(name, "must be an object of texts")
        for key, value in values.items():
            if not isinstance(value, str):
                raise self.wrong(f"{name}[{key}]", f"must be a text, not {json.dumps(value)}")
        return dict(values)

    def inner(self, name: str) -> _Fields | None:
        value = self.get(name)
        return None if value is None else _Fields(self.path(name), value)

    def done(self) -> None:
        for name in self._values:
            if name not in self._taken:
                raise self.wrong(name, f"is unknown; allowed are {', '.join(sorted(self._taken))}")


def parse(text: str) -> PipelineSpec:
    """Parse the JSON of a specification. Raises `PipelineSpecError` for the first invalid field."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise PipelineSpecError(f"the specification is not JSON: {error}") from None
    fields = _Fields("", content)
    spec = PipelineSpec(
        name=fields.needed("name"),
        bootstrap_servers=fields.needed("bootstrapServers"),
        source=_source(fields),
        transformation=_transformation(fields.inner("transformation")),
        target=_target(fields),
        trigger_seconds=_trigger_seconds(fields),
        checkpoint=fields.needed("checkpoint"),
        resources=_resources(fields),
    )
    fields.done()
    if spec.target.output_mode != "append" and spec.target.topic is None:
        raise PipelineSpecError(
            "target.outputMode: files can only be appended; aggregates need a topic, or append and a watermark"
        )
    return spec


def _source(parent: _Fields) -> PipelineSource:
    fields = parent.inner("source")
    if fields is None:
        raise parent.wrong("source", "is missing")
    source = PipelineSource(
        topics=fields.texts("topics"),
        pattern=fields.text("pattern"),
        value_format=fields.choice("format", VALUE_FORMATS),
        schema=fields.text("schema"),
        options=fields.options("options"),
    )
    fields.done()
    if bool(source.topics) == (source.pattern is not None):
        raise parent.wrong("source", "needs exactly one of topics and pattern")
    if source.value_format not in (None, "string") and source.schema is None:
        raise fields.wrong("schema", f"is missing: the format {source.value_format} needs the columns of the values")
    if source.schema is not None and source.value_format in (None, "string"):
        raise fields.wrong("schema", "needs a format with columns: json, avro or csv")
    return source


def _transformation(fields: _Fields | None) -> Transformation:
    if fields is None:
        return Transformation()
    sql = fields.text("sql")
    watermark = fields.inner("watermark")
    fields.done()
    if watermark is None:
        return Transformation(sql=sql)
    column, delay = watermark.needed("column"), watermark.needed("delay")
    watermark.done()
    return Transformation(sql=sql, watermark_column=column, watermark_delay=delay)


def _target(parent: _Fields) -> PipelineTarget:
    fields = parent.inner("target")
    if fields is None:
        raise parent.wrong("target", "is missing")
    topic, path = fields.text("topic"), fields.text("path")
    target = PipelineTarget(
        topic=topic,
        guarantee=fields.choice("deliveryGuarantee", GUARANTEES) or GUARANTEES[0],
        path=path,
        file_format=fields.choice("format", ("parquet",)) or "parquet",
        partition_by=fields.texts("partitionBy"),
        output_mode=fields.choice("outputMode", OUTPUT_MODES) or OUTPUT_MODES[0],
        options=fields.options("options"),
    )
    if (topic is None) == (path is None):
        raise parent.wrong("target", "needs exactly one of topic and path")
    for name in ("deliveryGuarantee",) if topic is None else ("format", "partitionBy"):
        if fields.get(name) is not None:
            raise fields.wrong(name, f"is for a {'topic' if topic is None else 'path'} only")
    fields.done()
    return target


def _trigger_seconds(parent: _Fields) -> float | None:
    mode = parent.get("mode")
    if mode == "batch":
        return None
    if not isinstance(mode, dict):
        raise parent.wrong("mode", 'must be "batch" or {"streaming": {"triggerSeconds": 10}}')
    fields = _Fields(parent.path("mode"), mode)
    streaming = fields.inner("streaming")
    fields.done()
    if streaming is None:
        raise fields.wrong("streaming", "is missing")
    seconds = streaming.get("triggerSeconds")
    streaming.done()
    if seconds is None:
        return 10.0
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds < 0:
        raise streaming.wrong("triggerSeconds", f"must be a number of seconds of at least 0, not {json.dumps(seconds)}")
    return float(seconds)


def _resources(parent: _Fields) -> SparkResources:
    standard = SparkResources()
    driver, executors = parent.inner("driver") or _Fields("", {}), parent.inner("executors") or _Fields("", {})
    instances = executors.whole("instances", low=1)
    low, high = executors.whole("minInstances", low=0), executors.whole("maxInstances", low=1)
    if (low is None) != (high is None) or (instances is not None and low is not None):
        raise parent.wrong("executors", "needs either instances, or both minInstances and maxInstances")
    if low is not None and high is not None and low > high:
        raise executors.wrong("minInstances", f"must not be greater than maxInstances, {high}")
    resources = SparkResources(
        driver_memory=driver.memory("memory", standard.driver_memory),
        executor_memory=executors.memory("memory", standard.executor_memory),
        executor_cores=executors.whole("cores", low=1) or standard.executor_cores,
        executor_cpu=executors.text("cpu"),
        min_executors=instances or (standard.min_executors if low is None else low),
        max_executors=instances or high or standard.max_executors,
        conf=parent.options("sparkConf"),
    )
    driver.done()
    executors.done()
    return resources
