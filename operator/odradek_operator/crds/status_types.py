"""The statuses of resources: only their schema is generated. `kube` writes them. Pure.

Fields that are not optional in these types are required in the schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from odradek_operator.crds.fields import Text, Whole
from odradek_operator.crds.model import Model, published

_Generation = Annotated[Whole, Field(ge=0)]
_GENERATION = "The metadata.generation of the specification that this was written for."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Condition(Model):
    """A condition."""

    type: Annotated[Text, Field(max_length=316)]
    """The aspect that the condition is about."""
    status: Literal["True", "False", "Unknown"]
    """Whether the condition is met."""
    reason: Annotated[Text, Field(max_length=1_024)]
    """The reason, in one word."""
    message: Annotated[str, Field(max_length=32_768)]
    """Details about the reason, for people."""
    last_transition_time: datetime
    """The time when the status last changed."""
    observed_generation: Annotated[_Generation | None, Field(description=_GENERATION)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _BoundListener(Model):
    """A listener."""

    name: str
    """Name of the listener."""
    type: str | None = None
    """From where clients reach it."""
    bootstrap: str | None = None
    """The value for bootstrap.servers of clients. Missing while it is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _BrokerState(Model):
    """A broker."""

    id: Whole
    """Id of the broker."""
    state: str
    """Running: its pod is ready and it is registered in ZooKeeper. Starting: not both yet. Restarting: its pod is being
    terminated. Pending: its pod has no node. Lost: its node is gone or not ready. Missing: it has no pod."""
    pod: str | None = None
    """Its pod."""
    node: str | None = None
    """The node of the pod."""
    rack: str | None = None
    """Its rack, as the broker registered it."""
    outdated: bool | None = None
    """Whether its pod does not match the specification and waits for a restart."""
    reason: str | None = None
    """Why it is not running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RollState(Model):
    """A rolling restart."""

    waiting_for: str | None = None
    """What the next restart waits for. Missing if it waits for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RebalanceState(Model):
    """A movement of replicas."""

    remaining: Whole | None = None
    """Number of partitions that still have to move."""
    total: Whole | None = None
    """Number of partitions of the cluster."""
    reason: str | None = None
    """Why they move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _EnsembleState(Model):
    """An ensemble."""

    ready: str | None = None
    """Number of members that are ready, and number that is specified: 3/3."""


_Warnings = tuple[Annotated[str, Field(description="A warning.")], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatusSchema(Model):
    """What the operator observed last. Only the operator writes it."""

    observed_generation: Annotated[_Generation | None, Field(description=_GENERATION)] = None
    conditions: Annotated[tuple[_Condition, ...], published(list_key="type")] = ()
    """Conditions in Kubernetes' usual form. Ready: every broker runs as specified, there is a controller, and the
    operator has nothing left to do."""
    version: str | None = None
    """Version of the brokers that run; several during a rolling upgrade."""
    cluster_id: str | None = None
    """Id that the cluster generated when it first started. Clients see it."""
    controller_id: Whole | None = None
    """Id of the broker that is controller."""
    controller_epoch: Whole | None = None
    """Number of the controller. Each election raises it."""
    brokers_ready: str | None = None
    """Number of brokers that are ready, and number that is specified: 2/3."""
    listeners: Annotated[tuple[_BoundListener, ...], published(list_key="name")] = ()
    """Where clients connect."""
    brokers: Annotated[tuple[_BrokerState, ...], published(list_key="id")] = ()
    """All brokers."""
    roll: _RollState | None = None
    """The restart of pods that do not match the specification. Missing if all match."""
    rebalance: _RebalanceState | None = None
    """Replicas that move. Missing if none do."""
    zookeeper: _EnsembleState | None = None
    """The cluster's own ensemble."""
    warnings: _Warnings = ()
    """Parts of the specification that have no effect, one message each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _GroupState(Model):
    """A consumer group."""

    group: str
    """Name of the group."""
    lag_records: Whole | None = None
    """Number of records that the group has not committed yet, over all partitions."""
    lag_seconds: float | None = None
    """Age of the oldest of these records, in the partition with the highest age."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStatusSchema(Model):
    """What the operator observed last. Only the operator writes it."""

    observed_generation: Annotated[_Generation | None, Field(description=_GENERATION)] = None
    conditions: Annotated[tuple[_Condition, ...], published(list_key="type")] = ()
    """Conditions in Kubernetes' usual form. Ready: the topic is as specified, and every replica is in sync."""
    topic_id: str | None = None
    """Id of the topic. A topic that is deleted and created again has another."""
    partitions: Whole | None = None
    """Number of partitions."""
    replicas: Whole | None = None
    """Number of replicas of each partition."""
    under_replicated: Whole | None = None
    """Number of partitions that lack an in-sync replica."""
    offline: Whole | None = None
    """Number of partitions without a leader."""
    size_bytes: Whole | None = None
    """Bytes of the logs of the leaders. Missing while no size is reported."""
    size: str | None = None
    """The same with a unit: 1.5Gi."""
    groups: Annotated[tuple[_GroupState, ...], published(list_key="group")] = ()
    """Consumer groups that committed offsets in the topic, sorted by lag, the highest first."""
    adopted: tuple[Annotated[str, Field(description="partitions=N or KEY=VALUE.")], ...] = ()
    """With drift: Adopt, the settings that others made in addition to the specification: partitions=N and KEY=VALUE."""
    warnings: _Warnings = ()
    """Parts of the specification that have no effect, and other warnings, one message each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserStatusSchema(Model):
    """What the operator observed last. Only the operator writes it."""

    observed_generation: Annotated[_Generation | None, Field(description=_GENERATION)] = None
    conditions: Annotated[tuple[_Condition, ...], published(list_key="type")] = ()
    """Conditions in Kubernetes' usual form. Ready: the Secret, the access rules and the quotas are as specified."""
    username: str | None = None
    """Name of the user in access rules and quotas, without User: in front."""
    secret: str | None = None
    """Secret with what clients need to log in."""
    warnings: _Warnings = ()
    """Parts of the specification that have no effect, one message each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _EndedRun(Model):
    """A driver that has ended."""

    driver: str
    """Its pod."""
    number: Whole
    """Number of the driver."""
    result: Literal["Succeeded", "Failed"]
    """How it ended."""
    run: str
    """What it did: the scheduled time of a batch job, or an identity of the specification."""
    specification: str
    """Hash of what it was made from."""
    attempt: Whole
    """1 for the first driver of a run, and one more for each restart in a row."""
    started_at: datetime
    """When it started."""
    ended_at: datetime
    """When it ended."""
    error: str | None = None
    """Why it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStatusSchema(Model):
    """What the operator observed last. Only the operator writes it."""

    observed_generation: Annotated[_Generation | None, Field(description=_GENERATION)] = None
    conditions: Annotated[tuple[_Condition, ...], published(list_key="type")] = ()
    """Conditions in Kubernetes' usual form. Ready: the job runs, waits for its next scheduled time, or has ended
    without an error."""
    phase: str | None = None
    """Starting, Running, Stopping, BackOff, Scheduled, Succeeded, Failed, Suspended, or Waiting for something else."""
    driver: str | None = None
    """Pod of the present driver."""
    drivers: Whole | None = None
    """Number of the last driver. Each new driver has the next number."""
    batch: Whole | None = None
    """Number of the last batch that has ended."""
    rate: float | None = None
    """Records per second that the job processed in its last batch."""
    input_rate: float | None = None
    """Records per second that arrived."""
    lag: Whole | None = None
    """Records that the job has not processed yet."""
    last_checkpoint: datetime | None = None
    """When the job last finished a batch."""
    reported_at: datetime | None = None
    """When the driver last reported. Figures are kept while it does not."""
    next_start: datetime | None = None
    """When the next driver starts, after a failure or at the next scheduled time."""
    last_run: Annotated[_EndedRun | None, Field(description="The last driver that has ended.")] = None
    error: str | None = None
    """Why the last driver failed, or what the present one reports. Missing while there is no error."""
    warnings: _Warnings = ()
    """Parts of the specification that have no effect, one message each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SourceState(Model):
    """A source."""

    name: str
    """Name of the source."""
    partitions: Whole | None = None
    """Number of its partitions that are copied."""
    lag_records: Whole | None = None
    """Records that are not copied yet, over all partitions."""
    lag_seconds: float | None = None
    """Age of the last copied record while others wait, in the partition with the highest age."""
    failing_partitions: Whole | None = None
    """Number of partitions that have stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _FailingPartition(Model):
    """A partition that has stopped."""

    source: str
    """Name of its source."""
    topic: str
    """Name of its topic in the source."""
    partition: Whole
    """Its number."""
    error: str | None = None
    """Why it has stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorStatusSchema(Model):
    """What the operator observed last. Only the operator writes it."""

    observed_generation: Annotated[_Generation | None, Field(description=_GENERATION)] = None
    conditions: Annotated[tuple[_Condition, ...], published(list_key="type")] = ()
    """Conditions in Kubernetes' usual form. Ready: all pods run as specified, and no partition has stopped."""
    phase: str | None = None
    """Starting, Updating, Running, Degraded, Failing, Suspended, or Waiting for something else."""
    replicas: Whole | None = None
    """Number of pods."""
    pods_ready: str | None = None
    """Number of pods that are ready, and number that is specified: 2/3."""
    source_names: str | None = None
    """Names of the sources, with commas."""
    lag_records: Whole | None = None
    """Records that are not copied yet, over all sources. Missing while no pod reports."""
    lag_seconds: float | None = None
    """Age of the last copied record while others wait, in the partition with the highest age."""
    sources: Annotated[tuple[_SourceState, ...], published(list_key="name")] = ()
    """The sources."""
    failing_partitions: Whole | None = None
    """Number of partitions that have stopped. Missing while no pod reports."""
    failing: tuple[Annotated[_FailingPartition, Field(description="A partition that has stopped.")], ...] = ()
    """Partitions that have stopped, at most 20."""
    warnings: _Warnings = ()
    """Parts of the specification that have no effect, and other warnings, one message each."""
