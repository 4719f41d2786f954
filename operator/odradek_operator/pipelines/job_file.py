"""The file that tells the job what to do (docs/design/0029, "Pipelines"), and the settings of Spark. Pure.

The file has no secrets: everybody who may read ConfigMaps of the namespace reads it.
"""

from __future__ import annotations

import json
from decimal import Decimal
from hashlib import sha256
from typing import Any, Final

from odradek_operator.crds.fields import quantity_value
from odradek_operator.crds.types import Pipeline
from odradek_operator.pipelines import pipeline_names as names
from odradek_operator.security.client_connection import ClientConnection

EXACTLY_ONCE: Final = "exactly-once"
_HEAP: Final = Decimal("0.6")
"""Largest share of the memory of a container that is Java's heap."""
_DRIVER_REST: Final = 1024
"""MiB of a driver that are not heap. Beside Java run the job, the planner of the source and the committer of the sink,
each in a Python process."""
_MEBIBYTE: Final = 1 << 20


def sink_id(pipeline: Pipeline) -> str:
    """Return the identity of the output of a Pipeline. It never changes, and no other Pipeline has it."""
    return f"{pipeline.namespace}/{pipeline.name}/{pipeline.uid}"


def checkpoint_path(pipeline: Pipeline) -> str:
    """Return the folder of the checkpoint, as the job sees it."""
    checkpoint = pipeline.checkpoint
    return checkpoint.path if checkpoint.claim is None else f"{names.CHECKPOINT_FOLDER}/{checkpoint.path.lstrip('/')}"


def job_document(pipeline: Pipeline, connection: ClientConnection, pull_policy: str) -> dict[str, Any]:
    """Return the content of the job's file. `pull_policy`: that of the images of executors."""
    source, target, change = pipeline.source, pipeline.target, pipeline.transformation
    document: dict[str, Any] = {
        "name": pipeline.name,
        "bootstrapServers": connection.bootstrap_servers,
        "source": _known(
            topics=None if source.topics is None else list(source.topics),
            pattern=source.pattern,
            format=source.format,
            schema=source.schema,
            options={**_trust(connection), **source.options},
        ),
        "target": _target(pipeline, connection),
        "mode": "batch"
        if pipeline.streaming is None
        else {"streaming": {"triggerSeconds": pipeline.streaming.trigger_seconds}},
        "checkpoint": checkpoint_path(pipeline),
        **_spark(pipeline, pull_policy),
    }
    if change is not None:
        watermark = change.watermark
        late = None if watermark is None else {"column": watermark.column, "delay": watermark.delay}
        document["transformation"] = _known(sql=change.sql, watermark=late)
    assert target.topic is not None or target.path is not None, "the reader has this rule"
    return document


def _trust(connection: ClientConnection) -> dict[str, str]:
    """Return the options for a listener with TLS and without a login. A login has its own file."""
    if connection.authority is None or connection.audience is not None:
        return {}
    return {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": f"{names.LOGIN_FOLDER}/ca.crt",
    }


def _target(pipeline: Pipeline, connection: ClientConnection) -> dict[str, Any]:
    target = pipeline.target
    options = dict(target.options)
    if target.topic is not None:
        options = {**_trust(connection), **options}
    if target.delivery_guarantee == EXACTLY_ONCE:
        options.setdefault("sinkId", sink_id(pipeline))
    if target.topic is not None:
        guarantee = target.delivery_guarantee
        return _known(topic=target.topic, deliveryGuarantee=guarantee, outputMode=target.output_mode, options=options)
    columns = None if target.partition_by is None else list(target.partition_by)
    return _known(path=target.path, format=target.format or "parquet", partitionBy=columns, options=options)


def run_of_specification(pipeline: Pipeline) -> str:
    """Return the identity of the only run of a batch job without a schedule.

    It changes with what the job does. It does not change with the addresses of the cluster, or with an upgrade of the
    operator.
    """
    nowhere = ClientConnection(bootstrap_servers=pipeline.bootstrap_servers or pipeline.cluster or "")
    content = [job_document(pipeline, nowhere, ""), pipeline.image]
    return f"specification-{digest(content)[:16]}"


def digest(content: Any) -> str:
    """Return a hash of a JSON document."""
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _spark(pipeline: Pipeline, pull_policy: str) -> dict[str, Any]:
    """Return the parts of the file about the driver, the executors and the settings of Spark."""
    executors = pipeline.executors
    heap, rest = _memory(executors.memory)
    settings = {
        "spark.driver.port": str(names.DRIVER_PORT),
        "spark.driver.blockManager.port": str(names.BLOCK_PORT),
        "spark.blockManager.port": str(names.BLOCK_PORT),
        "spark.executor.memoryOverhead": f"{rest}m",
        "spark.kubernetes.container.image.pullPolicy": pull_policy,
        "spark.kubernetes.authenticate.executor.serviceAccountName": names.pipeline_objects_name(pipeline.name),
        "spark.kubernetes.executor.podTemplateContainerName": names.EXECUTOR,
        # Without these objects of Spark, the driver needs rights for pods only.
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
    }
    return {
        "driver": {"memory": f"{_memory(pipeline.driver.memory, rest=_DRIVER_REST)[0]}m"},
        "executors": {
            "memory": f"{heap}m",
            "cores": executors.cores,
            "cpu": executors.cpu,
            **_number(pipeline),
        },
        "sparkConf": {**pipeline.spark_conf, **settings},
    }


def _number(pipeline: Pipeline) -> dict[str, int]:
    dynamic = pipeline.executors.dynamic_allocation
    if dynamic is None:
        return {"instances": pipeline.executors.instances or 1}
    return {"minInstances": dynamic.min, "maxInstances": dynamic.max}


def _memory(quantity: str, *, rest: int = 0) -> tuple[int, int]:
    """Return the heap and the rest of the memory of a container, in MiB; at least `rest`."""
    whole = int(quantity_value(quantity)) // _MEBIBYTE
    heap = min(int(whole * _HEAP), whole - rest)
    return heap, whole - heap


def _known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
