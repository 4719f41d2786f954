"""The dashboard of a cluster's ZooKeeper ensemble. Pure."""

from __future__ import annotations

from typing import Final

from odradek_operator.dashboards import queries
from odradek_operator.dashboards.grafana import Dashboard, Look, Panel, Row, Variable, lines

_NODES: Final = "zookeeper_inmemorydatatree_nodecount"
_POD: Final = "{{kubernetes_pod_name}}"
_MEMBERS: Final = 'SCOPE, container="zookeeper"'

_VARIABLES: Final = (
    Variable(name="namespace", label="Namespace", series=_NODES, value="namespace"),
    Variable(name="cluster", label="Cluster", series=f'{_NODES}{{namespace="$namespace"}}', value="strimzi_io_cluster"),
)

_STATE: Final = Row(
    title="Is there a quorum?",
    panels=(
        Panel(
            title="Members that answer",
            description="More than half of the ensemble must; else nothing can be written and no leader elected.",
            queries=lines("count(zookeeper_avgrequestlatency{SCOPE})"),
            look=Look.NUMBER,
            width=8,
            height=4,
        ),
        Panel(
            title="Size of the ensemble",
            description="Voters as configured.",
            queries=lines("max(zookeeper_quorumsize{SCOPE})"),
            look=Look.NUMBER,
            width=8,
            height=4,
        ),
        Panel(
            title="Connections",
            description="Connections of clients; each broker has one, the operator one for each cluster.",
            queries=lines("sum(zookeeper_numaliveconnections{SCOPE})"),
            look=Look.NUMBER,
            width=8,
            height=4,
        ),
    ),
)

_PACE: Final = Row(
    title="How fast does it answer?",
    panels=(
        Panel(
            title="Mean latency",
            description="Mean time of a request in each member. Above some milliseconds, look at its disk first.",
            queries=lines(queries.ZOOKEEPER_LATENCY, _POD),
            unit="ms",
        ),
        Panel(
            title="Longest and shortest",
            description="Extremes since the member started.",
            queries=lines("zookeeper_maxrequestlatency{SCOPE}", f"{_POD} longest")
            + lines("zookeeper_minrequestlatency{SCOPE}", f"{_POD} shortest"),
            unit="ms",
        ),
        Panel(
            title="Requests in the queue",
            description="Requests that a member has taken and not answered.",
            queries=lines(queries.ZOOKEEPER_OUTSTANDING, _POD),
        ),
    ),
)

_CONTENT: Final = Row(
    title="What it holds",
    panels=(
        Panel(
            title="Znodes",
            description="Nodes of the tree: a few for each partition, and one for each old consumer's offset.",
            queries=lines(f"{_NODES}{{SCOPE}}", _POD),
        ),
        Panel(
            title="Watches",
            description="Watches that clients have set.",
            queries=lines("zookeeper_inmemorydatatree_watchcount{SCOPE}", _POD),
        ),
        Panel(
            title="Connections of members",
            description="Where the clients are.",
            queries=lines("sum by (kubernetes_pod_name) (zookeeper_numaliveconnections{SCOPE})", _POD),
            look=Look.AREAS,
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
            title="Free room of claims",
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
    rows=(_STATE, _PACE, _CONTENT),
)
