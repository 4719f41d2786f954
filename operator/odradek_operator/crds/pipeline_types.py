"""The Pipeline resource: a Spark job from topics to a table or to a topic. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import ceil
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import ConfigDict, Field

from odradek.base.topic_rules import MAX_NAME_LENGTH as MAX_TOPIC_NAME_LENGTH
from odradek_operator.crds.cluster_types import CLUSTER_NAME_ALLOWED, CLUSTER_NAME_PATTERN
from odradek_operator.crds.fields import (
    MAX_LABEL,
    MAX_PROPERTIES,
    MAX_PROPERTY,
    Entries,
    Flag,
    Image,
    Json,
    ObjectName,
    Quantities,
    Text,
    Verbatim,
    Whole,
    Written,
    matching,
    password_problem,
    quantity_value,
    without_keys,
)
from odradek_operator.crds.metadata import MAX_CLUSTER_NAME_LENGTH, METADATA, SPECIFICATION, Metadata
from odradek_operator.crds.model import Check, Complaint, Group, Model, Reading, Rule, must, published
from odradek_operator.crds.pod_types import (
    MAX_GRACE_SECONDS,
    MAX_PULL_SECRETS,
    PodAdditions,
    SecretName,
    additional_labels,
    operated_rule,
)
from odradek_operator.pipelines.pipeline_names import PIPELINE_LABELS
from odradek_operator.pipelines.schedule import ScheduleError, check_cron, check_time_zone

MAX_PIPELINE_NAME_LENGTH: Final = 32
"""Spark allows 47 characters for the beginning of the names of executors, which is the name of the driver."""
MAX_PIPELINE_TOPICS: Final = 256
MAX_SQL: Final = 65_536
MAX_SCHEMA: Final = 65_536
MAX_PATH: Final = 1_024
MAX_BOOTSTRAP: Final = 4_096
MAX_EXECUTORS: Final = 1_000
MAX_VOLUMES: Final = 16
MAX_VARIABLES: Final = 64
MAX_CRON: Final = 256
MAX_TRIGGER_SECONDS: Final = 86_400
MAX_BACKOFF_SECONDS: Final = 86_400
MAX_BACKOFF_LIMIT: Final = 1_000
MAX_HISTORY: Final = 20
MIN_SPARK_MEMORY: Final = "1Gi"
"""Spark needs a heap of 450 MiB, and Python needs memory beside it."""
MIN_DRIVER_MEMORY: Final = "1536Mi"
"""A heap of 512 MiB, and 1 GiB for the Python processes of a driver."""

_TopicName = Annotated[Text, Field(max_length=MAX_TOPIC_NAME_LENGTH, description="Name of a topic.")]
_Formats = Literal["json", "avro", "csv", "string"]
_Files = Literal["parquet"]
SOURCE_KEYS: Final = frozenset(
    {"kafka.bootstrap.servers", "subscribe", "subscribePattern", "assign", "valueFormat", "valueSchema"}
)
"""Options of the source that follow from the rest of the resource."""
TARGET_KEYS: Final = frozenset({"kafka.bootstrap.servers", "topic", "deliveryGuarantee", "path", "checkpointLocation"})
"""Options of the target that follow from the rest of the resource."""
SPARK_KEYS: Final = frozenset(
    {
        "spark.master",
        "spark.app.name",
        "spark.submit.deployMode",
        "spark.driver.host",
        "spark.driver.port",
        "spark.driver.bindAddress",
        "spark.driver.memory",
        "spark.blockManager.port",
        "spark.driver.blockManager.port",
        "spark.executor.memory",
        "spark.executor.memoryOverhead",
        "spark.executor.cores",
        "spark.executor.instances",
        "spark.dynamicAllocation.enabled",
        "spark.dynamicAllocation.minExecutors",
        "spark.dynamicAllocation.maxExecutors",
        "spark.kubernetes.namespace",
        "spark.kubernetes.container.image",
        "spark.kubernetes.executor.podTemplateFile",
        "spark.kubernetes.executor.podNamePrefix",
        "spark.kubernetes.driver.pod.name",
    }
)
"""Settings of Spark that follow from the rest of the resource."""


def _option_problem(key: str) -> str | None:
    return password_problem(key, "use spec.user or spec.env")


def _options(keys: frozenset[str]) -> Any:
    def check(key: str, value: str, reading: Reading) -> str | None:
        if key in keys:
            return "follows from the other fields of the resource: remove it."
        return _option_problem(key)

    return Entries(check=check, max_entries=MAX_PROPERTIES, max_length=MAX_PROPERTY)


def _only(keys: frozenset[str]) -> Any:
    return published(
        Rule(without_keys(keys), "One of these keys follows from the other fields of the resource: remove it.")
    )


def _one_of(one: str, other: str) -> tuple[Rule, Check]:
    """Return the rule that exactly one of two fields is set."""
    message = f"Set exactly one of {one} and {other}."

    def check(part: Mapping[str, Any], reading: Reading) -> Iterator[Complaint]:
        if (one in part) == (other in part):
            yield Complaint((one,), f"set exactly one of {one} and {other}.")

    return Rule(f"has(self.{one}) != has(self.{other})", message), check


_TOPICS_OR_PATTERN: Final = _one_of("topics", "pattern")
_TOPIC_OR_PATH: Final = _one_of("topic", "path")


def _has_schema(source: Mapping[str, Any], reading: Reading) -> Iterator[Complaint]:
    """The CEL rule is the same."""
    needs = source.get("format") in ("json", "avro", "csv")
    if needs != ("schema" in source):
        yield Complaint(("schema",), "must be set for the formats json, avro and csv, and for no other format.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSource(Model):
    """What the job reads."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        _TOPICS_OR_PATTERN[0],
        Rule(
            "(has(self.format) && self.format != 'string') == has(self.schema)",
            "schema must be set for the formats json, avro and csv, and for no other format.",
        ),
    )
    checks: ClassVar[tuple[Check, ...]] = (_TOPICS_OR_PATTERN[1], _has_schema)

    topics: Annotated[tuple[_TopicName, ...] | None, Field(min_length=1, max_length=MAX_PIPELINE_TOPICS)] = None
    """Names of the topics."""
    pattern: Annotated[Text | None, Field(max_length=MAX_PATH)] = None
    """Regular expression of Java for the names of the topics. New topics are found while the job runs."""
    format: _Formats | None = None
    """Format of the values. The columns of the schema are then in the column value, and what does not match is in
    _corrupt. If not set, value has the bytes."""
    schema: Annotated[Text | None, Field(max_length=MAX_SCHEMA)] = None
    """Columns of the values, as in CREATE TABLE of Spark SQL. For avro, also an Avro schema as JSON."""
    options: Annotated[Mapping[str, str], _options(SOURCE_KEYS), _only(SOURCE_KEYS)] = field(default_factory=dict)
    """Options of the connector's source, such as startingOffsets or maxOffsetsPerTrigger. Values are text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineWatermark(Model):
    """How late events may be."""

    column: Annotated[Text, Field(max_length=MAX_LABEL * 4)]
    """Column with the time of the event."""
    delay: Annotated[Text, Field(max_length=MAX_LABEL)]
    """How late, such as 10 minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTransformation(Model):
    """What the job makes of the records."""

    sql: Annotated[Text, Field(max_length=MAX_SQL)]
    """A query of Spark SQL over the view source."""
    watermark: PipelineWatermark | None = None
    """The watermark of the view, for windows."""


def _fits_target(target: Mapping[str, Any], reading: Reading) -> Iterator[Complaint]:
    """The CEL rules are the same."""
    if "deliveryGuarantee" in target and "topic" not in target:
        yield Complaint(("deliveryGuarantee",), "has a meaning for a topic only: remove it.")
    for name in ("format", "partitionBy"):
        if name in target and "path" not in target:
            yield Complaint((name,), "has a meaning for a path only: remove it.")
    if target.get("outputMode") in ("update", "complete") and "topic" not in target:
        yield Complaint(("outputMode",), "must be append for a path: rows of files cannot change.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTarget(Model):
    """Where the job writes."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        _TOPIC_OR_PATH[0],
        Rule(
            "!has(self.deliveryGuarantee) || has(self.topic)",
            "deliveryGuarantee has a meaning for a topic only: remove it.",
        ),
        Rule(
            "(!has(self.format) && !has(self.partitionBy)) || has(self.path)",
            "format and partitionBy have a meaning for a path only: remove them.",
        ),
        Rule(
            "!has(self.outputMode) || self.outputMode == 'append' || has(self.topic)",
            "outputMode must be append for a path: rows of files cannot change.",
        ),
    )
    checks: ClassVar[tuple[Check, ...]] = (_TOPIC_OR_PATH[1], _fits_target)

    topic: Annotated[Text | None, Field(max_length=MAX_TOPIC_NAME_LENGTH)] = None
    """Name of the topic."""
    delivery_guarantee: Literal["at-least-once", "exactly-once"] | None = None
    """How records get into the topic. exactly-once: in transactions, so that consumers with isolation.level
    read_committed see each result once. If not set, at-least-once."""
    path: Annotated[Text | None, Field(max_length=MAX_PATH)] = None
    """Folder of the table, on any file system of Hadoop, such as s3a://bucket/table, or on a volume of the
    resource."""
    format: _Files | None = None
    """Format of the files. If not set, parquet."""
    partition_by: Annotated[
        tuple[Annotated[Text, Field(max_length=MAX_LABEL * 4, description="Name of a column.")], ...] | None,
        Field(min_length=1, max_length=16),
    ] = None
    """Columns by whose values the files are in subfolders."""
    output_mode: Literal["append", "update", "complete"] | None = None
    """Which rows of an aggregation a batch of a streaming job writes: append, those that are final; update, those that
    have changed; complete, all. If not set, append, the only one for a path."""
    options: Annotated[Mapping[str, str], _options(TARGET_KEYS), _only(TARGET_KEYS)] = field(default_factory=dict)
    """Options of the sink. Values are text. With exactly-once, sinkId is NAMESPACE/NAME/UID of the resource unless it
    is set here."""


def _cron(text: Any) -> Iterator[str]:
    if isinstance(text, str) and 0 < len(text) <= MAX_CRON:
        try:
            check_cron(text)
        except ScheduleError as error:
            yield str(error)


def _possible_schedule(schedule: Mapping[str, Any], reading: Reading) -> Iterator[Complaint]:
    """Complain of what is no schedule. Only the reader has this rule."""
    for message in _cron(schedule.get("cron")):
        yield Complaint(("cron",), message)
    zone = schedule.get("timeZone")
    if isinstance(zone, str) and zone:
        try:
            check_time_zone(zone)
        except ScheduleError as error:
            yield Complaint(("timeZone",), str(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSchedule(Model):
    """When a batch job runs."""

    checks: ClassVar[tuple[Check, ...]] = (_possible_schedule,)

    cron: Annotated[Text, Field(max_length=MAX_CRON)]
    """Minute, hour, day of the month, month and day of the week, as for cron: "0 3 * * *" is daily at three."""
    time_zone: Annotated[Text, Field(max_length=MAX_LABEL)] = "UTC"
    """Time zone of cron, such as Europe/Vienna."""
    concurrency: Literal["Forbid"] = "Forbid"
    """Forbid: a run begins after the one before has ended. If several times have passed meanwhile, one run follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStreaming(Model):
    """A job that runs all the time."""

    trigger_seconds: Annotated[Whole, Field(ge=0, le=MAX_TRIGGER_SECONDS)] = 10
    """Seconds between the starts of two batches. 0: the next batch begins when the one before has ended."""


SparkMemory = Annotated[str, Quantities(at_least=MIN_SPARK_MEMORY, hint=", with its unit, such as 2Gi")]
DriverMemory = Annotated[str, Quantities(at_least=MIN_DRIVER_MEMORY, hint=", with its unit, such as 2Gi")]


def _memory_rule(least: str) -> Rule:
    return Rule(
        f"!has(self.memory) || quantity(string(self.memory)).compareTo(quantity('{least}')) >= 0",
        f"The memory is less than {least}: give it with its unit, such as 2Gi.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineDriver(Model):
    """The pod that plans the work."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (_memory_rule(MIN_DRIVER_MEMORY),)

    memory: DriverMemory = "2Gi"
    """Memory of the container. Java has all but 1 GiB as its heap, and 60 % at most."""
    cpu: Annotated[str, Quantities()] = "500m"
    """Processors that the scheduler reserves."""


def _minimum_first(bounds: Mapping[str, Any], reading: Reading) -> Iterator[Complaint]:
    """The CEL rule is the same."""
    least, most = bounds.get("min", 1), bounds.get("max")
    if isinstance(least, int) and isinstance(most, int) and least > most:
        yield must(("min",), f"at most {most}, the value of max", least)


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicAllocation(Model):
    """Bounds of the number of executors, which follows the number of waiting tasks."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (Rule("self.min <= self.max", "min is more than max."),)
    checks: ClassVar[tuple[Check, ...]] = (_minimum_first,)

    min: Annotated[Whole, Field(ge=0, le=MAX_EXECUTORS)] = 1
    """Least number."""
    max: Annotated[Whole, Field(ge=1, le=MAX_EXECUTORS)]
    """Largest number."""


def _fixed_or_dynamic(executors: Mapping[str, Any], reading: Reading) -> Iterator[Complaint]:
    """The CEL rule is the same."""
    if "instances" in executors and "dynamicAllocation" in executors:
        yield Complaint(("instances",), "set only one of instances and dynamicAllocation.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineExecutors(Model):
    """The pods that do the work."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        _memory_rule(MIN_SPARK_MEMORY),
        Rule(
            "!has(self.instances) || !has(self.dynamicAllocation)",
            "Set only one of instances and dynamicAllocation.",
        ),
    )
    checks: ClassVar[tuple[Check, ...]] = (_fixed_or_dynamic,)

    memory: SparkMemory = MIN_SPARK_MEMORY
    """Memory of each container. Java has 60 % of it as its heap; Python and network buffers have the rest."""
    cpu: Annotated[str, Quantities()] = "1"
    """Processors that the scheduler reserves for each. An executor runs as many tasks at once, rounded up."""
    instances: Annotated[Whole | None, Field(ge=1, le=MAX_EXECUTORS)] = None
    """Number of executors. If neither this nor dynamicAllocation is set, one."""
    dynamic_allocation: DynamicAllocation | None = None
    """A number that follows the work. Shuffle files are tracked, so no shuffle service is needed."""

    @property
    def cores(self) -> int:
        """Tasks that an executor runs at once."""
        return max(1, ceil(quantity_value(self.cpu)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineCheckpoint(Model):
    """Where the job remembers offsets and state. It is never deleted by the operator."""

    path: Annotated[Text, Field(max_length=MAX_PATH)]
    """Folder on any file system of Hadoop, such as s3a://bucket/checkpoint; with claim, the folder on its volume."""
    claim: ObjectName | None = None
    """PersistentVolumeClaim in the namespace of the resource, which driver and executors mount."""


def _absolute(volume: Mapping[str, Any], reading: Reading) -> Iterator[Complaint]:
    """The CEL rule is the same."""
    path = volume.get("mountPath")
    if isinstance(path, str) and path and not path.startswith("/"):
        yield must(("mountPath",), "a path that begins with /", path)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineVolume(Model):
    """A PersistentVolumeClaim that driver and executors mount."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (Rule("self.mountPath.startsWith('/')", "mountPath must begin with /."),)
    checks: ClassVar[tuple[Check, ...]] = (_absolute,)

    claim: ObjectName
    """Name of the claim, in the namespace of the resource."""
    mount_path: Annotated[Text, Field(max_length=MAX_PATH)]
    """Where it is mounted."""
    read_only: Flag = False
    """Whether the pods may only read it."""


class RestartPolicy(Enum):
    """What happens when a driver fails."""

    ON_FAILURE = "OnFailure"
    """Another one starts after a pause."""
    NEVER = "Never"
    """Nothing, until the resource changes or the next scheduled time comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRestart(Model):
    """What happens when a driver fails."""

    policy: RestartPolicy = RestartPolicy.ON_FAILURE
    """OnFailure: another driver starts after a pause. Never: only after a change of the resource, or at the next
    scheduled time. A streaming job that ends without an error counts as failed."""
    backoff_seconds: Annotated[Whole, Field(ge=1, le=MAX_BACKOFF_SECONDS)] = 10
    """The first pause, which doubles with each failure in a row."""
    max_backoff_seconds: Annotated[Whole, Field(ge=1, le=MAX_BACKOFF_SECONDS)] = 300
    """The longest pause."""
    backoff_limit: Annotated[Whole | None, Field(ge=0, le=MAX_BACKOFF_LIMIT)] = None
    """Most restarts in a row. If not set, 3 for each run of a batch job, and no limit for a streaming job. A streaming
    driver that ran for ten minutes begins a new count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTemplate(PodAdditions):
    """Additions to the pods of driver and executors."""

    labels: Annotated[
        Mapping[str, str],
        additional_labels(PIPELINE_LABELS),
        published(operated_rule(PIPELINE_LABELS)),
    ] = field(default_factory=dict)
    """Labels in addition to those that the operator sets."""
    affinity: (
        Annotated[
            Json,
            Verbatim(
                "Kubernetes affinity rules. If not set, executors of a job with claims prefer the node of its driver."
            ),
        ]
        | None
    ) = None
    termination_grace_period_seconds: Annotated[Whole, Field(ge=1, le=MAX_GRACE_SECONDS)] = 60
    """Seconds between SIGTERM and SIGKILL. The driver ends the running batch in this time."""


def _exclusive(resource: Mapping[str, Any], reading: Reading) -> Iterator[Complaint]:
    """The CEL rules are the same."""
    if ("spec.cluster" in resource) == ("spec.bootstrapServers" in resource):
        yield Complaint(("spec.cluster",), "set exactly one of cluster and bootstrapServers.")
    if "spec.schedule" in resource and "spec.streaming" in resource:
        yield Complaint(("spec.schedule",), "a streaming job has no schedule: remove schedule or streaming.")


def _spark_setting(key: str, value: str, reading: Reading) -> str | None:
    if key in SPARK_KEYS:
        return "follows from the other fields of the resource: remove it."
    if not key.startswith("spark."):
        return "is not a setting of Spark: their names begin with spark."
    return _option_problem(key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline(Metadata):
    """A Spark job that reads topics and writes a table or a topic."""

    __pydantic_config__: ClassVar[ConfigDict] = SPECIFICATION
    field_groups: ClassVar[Mapping[str, Group]] = {
        "metadata": METADATA,
        "spec": Group(
            description="The desired state of the job.",
            required=True,
            rules=(
                Rule(
                    "has(self.cluster) != has(self.bootstrapServers)",
                    "Set exactly one of cluster and bootstrapServers.",
                ),
                Rule(
                    "!has(self.schedule) || !has(self.streaming)",
                    "A streaming job has no schedule: remove schedule or streaming.",
                ),
            ),
        ),
    }
    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.metadata.name.matches('^{CLUSTER_NAME_PATTERN}$')",
            f"The name of a Pipeline must be {CLUSTER_NAME_ALLOWED}, because its Service is named after it.",
        ),
    )
    checks: ClassVar[tuple[Check, ...]] = (_exclusive,)

    name: Annotated[
        Text,
        Field(alias="metadata.name", max_length=MAX_PIPELINE_NAME_LENGTH),
        matching(re.compile(CLUSTER_NAME_PATTERN)),
        published(allowed=CLUSTER_NAME_ALLOWED),
    ]
    cluster: Annotated[ObjectName | None, Field(max_length=MAX_CLUSTER_NAME_LENGTH)] = None
    """Name of the Cluster with the topics, in the same namespace."""
    bootstrap_servers: Annotated[Text | None, Field(max_length=MAX_BOOTSTRAP)] = None
    """Addresses of brokers of another cluster: host:port, with commas."""
    user: ObjectName | None = None
    """Name of the User as which the job logs in, in the same namespace. If not set, the job logs in with its
    ServiceAccount NAME-odradek-pipeline if a listener of the Cluster has authentication of type serviceaccount, and
    else without authentication."""
    source: PipelineSource
    """What the job reads."""
    transformation: PipelineTransformation | None = None
    """What the job makes of the records. If not set, it writes what it reads."""
    target: PipelineTarget
    """Where the job writes."""
    schedule: PipelineSchedule | None = None
    """Times at which a batch job reads what is new. If neither this nor streaming is set, the job runs once, and again
    when its specification changes."""
    streaming: PipelineStreaming | None = None
    """Makes a job that runs all the time."""
    driver: Annotated[PipelineDriver, published(default={})] = PipelineDriver()
    """The pod that plans the work."""
    executors: Annotated[PipelineExecutors, published(default={})] = PipelineExecutors()
    """The pods that do the work."""
    checkpoint: PipelineCheckpoint
    """Where the job remembers offsets and state."""
    volumes: Annotated[tuple[PipelineVolume, ...], Field(max_length=MAX_VOLUMES)] = ()
    """Claims that driver and executors mount, such as the one with the table."""
    image: Image | None = None
    """Image of driver and executors. If not set, that of the version of the operator, so that an upgrade of the
    operator restarts streaming jobs."""
    image_pull_secrets: Annotated[
        tuple[Annotated[str, Written(SecretName, lambda secret: secret.name)], ...],
        Field(max_length=MAX_PULL_SECRETS),
    ] = ()
    """Secrets of the namespace with the credentials to pull the image."""
    env: Annotated[
        tuple[Annotated[Json, Verbatim("A variable in Kubernetes' form: name, and value or valueFrom.")], ...],
        Field(max_length=MAX_VARIABLES),
    ] = ()
    """Environment variables of driver and executors, such as credentials of a file system from a Secret."""
    spark_conf: Annotated[
        Mapping[str, str],
        Entries(check=_spark_setting, max_entries=MAX_PROPERTIES, max_length=MAX_PROPERTY),
        _only(SPARK_KEYS),
    ] = field(default_factory=dict)
    """Settings of Spark, such as spark.hadoop.fs.s3a.endpoint. Passwords belong into env."""
    template: Annotated[PipelineTemplate, published(default={})] = PipelineTemplate()
    """Additions to the pods of driver and executors."""
    restart: Annotated[PipelineRestart, published(default={})] = PipelineRestart()
    """What happens when a driver fails."""
    history: Annotated[Whole, Field(ge=1, le=MAX_HISTORY)] = 3
    """Number of pods of ended drivers that are kept, for their logs."""
    suspend: Flag = False
    """Whether the job is stopped. Checkpoint and data are kept."""
    pod_monitor: Flag = False
    """Whether the operator creates a PodMonitor for the metrics of the driver. It needs the Prometheus operator."""
    network_policies: Flag = True
    """Whether the operator creates a NetworkPolicy for the pods of the job."""

    @property
    def is_streaming(self) -> bool:
        """Whether the job runs all the time."""
        return self.streaming is not None
