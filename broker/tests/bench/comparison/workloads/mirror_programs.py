"""The two mirrors: `odradek mirror`, and MirrorMaker 2 of Apache Kafka in dedicated mode.

Each copies one topic from one cluster to another with the default options of its documentation, except where a comment
says why. A mirror gets a new alias for its source, so that it starts at the beginning and its copy is a new topic.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from comparison.figures import OURS
from odradek_operator.embedded.child import ChildProcess
from odradek_testkit.interop.apache import java_command, mirror_jars

_VERSION: Final = "3.9.1"
_MAIN_CLASS: Final = "org.apache.kafka.connect.mirror.MirrorMaker"

# JVM options of Kafka's start scripts (bin/connect-mirror-maker.sh, bin/kafka-run-class.sh).
_JVM: Final = (
    "-Xms256m",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
_HEAP: Final = "2g"
_ENVIRONMENT: Final = {"PYTHONDONTWRITEBYTECODE": ""}
_FACTORS: Final = (
    "replication.factor",
    "checkpoints.topic.replication.factor",
    "heartbeats.topic.replication.factor",
    "offset-syncs.topic.replication.factor",
    "offset.storage.replication.factor",
    "status.storage.replication.factor",
    "config.storage.replication.factor",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What a mirror copies."""

    alias: str
    """The name of the source cluster, and the prefix of the copy."""
    source: str
    """Bootstrap servers of the source cluster."""
    target: str
    """Bootstrap servers of the target cluster."""
    topic: str

    @property
    def copy(self) -> str:
        """The name of the topic in the target cluster, the same for both mirrors."""
        return f"{self.alias}.{self.topic}"


def mirror_process(side: str, route: Route, folder: Path, *, jars: Path, exactly_once: bool) -> ChildProcess:
    """Return the process of a side's mirror, which is not started yet. Its files are in `folder`.

    `exactly_once`: whether MirrorMaker 2 copies each record exactly once. `odradek mirror` always does.
    """
    folder.mkdir()
    if side == OURS:
        path = folder / "mirror.yaml"
        path.write_text(json.dumps(odradek_options(route)), encoding="utf-8")
        command = [sys.executable, "-m", "odradek.cli.main", "mirror", "--config", str(path), "--log-level", "WARNING"]
    else:
        path = folder / "mirror.properties"
        lines = (f"{key} = {value}\n" for key, value in mirrormaker_options(route, exactly_once=exactly_once).items())
        path.write_text("".join(lines), encoding="utf-8")
        classes = mirror_jars(_VERSION, jars.parent)
        command = [*java_command(classes, _MAIN_CLASS, heap=_HEAP, options=_JVM), str(path)]
    return ChildProcess(f"mirror of {side}", command, folder / "mirror.log", environment=_ENVIRONMENT)


def odradek_options(route: Route) -> dict[str, object]:
    """Return the configuration of `odradek mirror`."""
    return {
        "name": route.alias,
        "target": {"bootstrapServers": route.target},
        "sources": [
            {"name": route.alias, "bootstrapServers": route.source, "topics": {"include": [route.topic]}},
        ],
    }


def mirrormaker_options(route: Route, *, exactly_once: bool) -> dict[str, str]:
    """Return the properties of MirrorMaker 2."""
    source, flow = route.alias, f"{route.alias}->target"
    settings = {
        "clusters": f"{source}, target",
        f"{source}.bootstrap.servers": route.source,
        "target.bootstrap.servers": route.target,
        f"{flow}.enabled": "true",
        f"{flow}.topics": route.topic,
        f"target->{source}.enabled": "false",
        # The documentation recommends at least two tasks. The machine has two cores.
        "tasks.max": "2",
        # There is one broker.
        **dict.fromkeys(_FACTORS, "1"),
    }
    if exactly_once:
        # The default is a transaction for each poll, which is at most 500 records.
        settings |= {
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": "http://127.0.0.1:0",
            "target.exactly.once.source.support": "enabled",
            "transaction.boundary": "interval",
            "transaction.boundary.interval.ms": "1000",
        }
    return settings
