"""The dashboard of a cluster's ZooKeeper ensemble. Pure."""

from __future__ import annotations

from typing import Final

from odradek_operator.dashboards import queries
from odradek_operator.dashboards.grafana import Dashboard, Panel, PanelType, Row, Variable, lines

_NODES: Final = "zookeeper_inmemorydatatree_nodecount"
_POD: Final = "{{kubernetes_pod_name}}"
_MEMBERS: Final = 'SCOPE, container="zookeeper"'

_VARIABLES: Final = (
    Variable(name="namespace", label="Namespace", series=_NODES, value="namespace"),
    Variable(name="cluster", label="Cluster", series=f'{_NODES}{{namespace="$namespace"}}', value="strimzi_io_cluster"),
)

_STATE: Final = Row(
    title="Quorum",
    panels=(
        Panel(
            title="Available members",
            description="Members that answer. More than half of the ensemble must be available to write and to elect "
            "leaders.",
            queries=lines("count(zookeeper_avgrequestlatency{SCOPE})"),
            type=PanelType.NUMBER,
            width=8,
            height=4,
        ),
        Panel(
            title="Size of the ensemble",
            description="Number of configured voting members.",
            queries=lines("max(zookeeper_quorumsize{SCOPE})"),
            type=PanelType.NUMBER,
            width=8,
            height=4,
        ),
        Panel(
            title="Connections",
            description="Number of client connections. Each broker has one, and the operator one per cluster.",
            queries=lines("sum(zookeeper_numaliveconnections{SCOPE})"),
            type=PanelType.NUMBER,
            width=8,
            height=4,
        ),
    ),
)

_LATENCY: Final = Row(
    title="Latency",
    panels=(
        Panel(
            title="Mean latency",
            description="Average latency of requests. If it exceeds some milliseconds, check the disk first.",
            queries=lines(queries.ZOOKEEPER_LATENCY, _POD),
            unit="ms",
        ),
        Panel(
            title="Maximum and minimum latency",
            description="Longest and shortest request since the member started.",
            queries=lines("zookeeper_maxrequestlatency{SCOPE}", f"{_POD} maximum")
            + lines("zookeeper_minrequestlatency{SCOPE}", f"{_POD} minimum"),
            unit="ms",
        ),
        Panel(
            title="Outstanding requests",
            description="Requests that are queued in a member.",
            queries=lines(queries.ZOOKEEPER_OUTSTANDING, _POD),
        ),
    ),
)

_CONTENT: Final = Row(
    title="Data and resources",
    panels=(
        Panel(
            title="Znodes",
            description="Number of znodes: a few per partition, and one per offset of old consumers.",
            queries=lines(f"{_NODES}{{SCOPE}}", _POD),
        ),
        Panel(
            title="Watches",
            description="Watches set by clients.",
            queries=lines("zookeeper_inmemorydatatree_watchcount{SCOPE}", _POD),
        ),
        Panel(
            title="Connections by member",
            description="Client connections of each member.",
            queries=lines("sum by (kubernetes_pod_name) (zookeeper_numaliveconnections{SCOPE})", _POD),
            type=PanelType.AREAS,
        ),
        Panel(
            title="Memory",
            description="Memory of the ZooKeeper processes.",
            queries=lines(f"sum by (kubernetes_pod_name) (jvm_memory_used_bytes{{{_MEMBERS}}})", _POD),
            unit="bytes",
        ),
        Panel(
            title="Open files",
            description="File descriptors of the ZooKeeper processes.",
            queries=lines(f"process_open_fds{{{_MEMBERS}}}", _POD),
        ),
        Panel(
            title="Free space of volumes",
            description="Free share of each member's volume claim. Snapshots and transaction logs are purged hourly.",
            queries=lines(queries.CLAIM_FREE.replace("CLAIMS", queries.ENSEMBLE_CLAIM), "{{persistentvolumeclaim}}"),
            unit="percentunit",
            high=1,
        ),
    ),
)

DASHBOARD: Final = Dashboard(
    name="zookeeper",
    title="Odradek: ZooKeeper",
    description="The ZooKeeper ensemble of one cluster.",
    variables=_VARIABLES,
    rows=(_STATE, _LATENCY, _CONTENT),
)
