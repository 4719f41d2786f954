"""Converts ZooKeeper's `mntr` into the series that dashboards for its JMX exporter query. Pure.

`pod/zookeeper_pod` uses it at each scrape. The table `SERIES` has the series. A series is omitted if its key is not in
the answer: a server that does not serve yet answers with one line without keys. Names, labels and types follow the
common exporter rules for ZooKeeper's beans.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple


class SeriesKind(Enum):
    """Type of a series in Prometheus."""

    GAUGE = "gauge"
    COUNTER = "counter"


class Of(Enum):
    """The labels of a series."""

    ENSEMBLE = ()
    MEMBER = ("replicaId", "memberType")


class MntrSeries(NamedTuple):
    """One series and its key in `mntr`."""

    key: str
    name: str
    kind: SeriesKind
    of: Of
    help: str


class Sample(NamedTuple):
    """One value of a series, with its labels."""

    series: MntrSeries
    labels: Mapping[str, str]
    value: float


SERIES: Final = (
    MntrSeries(
        "zk_quorum_size", "zookeeper_quorumsize", SeriesKind.GAUGE, Of.ENSEMBLE, "Voting members of the ensemble."
    ),
    MntrSeries(
        "zk_num_alive_connections",
        "zookeeper_numaliveconnections",
        SeriesKind.GAUGE,
        Of.MEMBER,
        "Connections of clients.",
    ),
    MntrSeries(
        "zk_outstanding_requests",
        "zookeeper_outstandingrequests",
        SeriesKind.GAUGE,
        Of.MEMBER,
        "Outstanding requests.",
    ),
    MntrSeries(
        "zk_avg_latency",
        "zookeeper_avgrequestlatency",
        SeriesKind.GAUGE,
        Of.MEMBER,
        "Average latency in milliseconds.",
    ),
    MntrSeries(
        "zk_min_latency",
        "zookeeper_minrequestlatency",
        SeriesKind.GAUGE,
        Of.MEMBER,
        "Minimum latency in milliseconds.",
    ),
    MntrSeries(
        "zk_max_latency",
        "zookeeper_maxrequestlatency",
        SeriesKind.GAUGE,
        Of.MEMBER,
        "Maximum latency in milliseconds.",
    ),
    MntrSeries(
        "zk_znode_count", "zookeeper_inmemorydatatree_nodecount", SeriesKind.GAUGE, Of.MEMBER, "Znodes in memory."
    ),
    MntrSeries("zk_watch_count", "zookeeper_inmemorydatatree_watchcount", SeriesKind.GAUGE, Of.MEMBER, "Watches set."),
    MntrSeries(
        "zk_ephemerals_count",
        "zookeeper_inmemorydatatree_ephemeralscount",
        SeriesKind.GAUGE,
        Of.MEMBER,
        "Ephemeral znodes.",
    ),
    MntrSeries(
        "zk_approximate_data_size",
        "zookeeper_inmemorydatatree_approximatedatasize",
        SeriesKind.GAUGE,
        Of.MEMBER,
        "Approximate size of all znodes in bytes.",
    ),
    MntrSeries(
        "zk_packets_received", "zookeeper_packetsreceived", SeriesKind.COUNTER, Of.MEMBER, "Packets from clients."
    ),
    MntrSeries("zk_packets_sent", "zookeeper_packetssent", SeriesKind.COUNTER, Of.MEMBER, "Packets to clients."),
    MntrSeries(
        "zk_synced_followers",
        "zookeeper_syncedfollowers",
        SeriesKind.GAUGE,
        Of.MEMBER,
        "Followers in sync with this leader.",
    ),
    MntrSeries(
        "zk_learners", "zookeeper_learners", SeriesKind.GAUGE, Of.MEMBER, "Followers and observers of this leader."
    ),
    MntrSeries(
        "zk_uptime",
        "zookeeper_uptimemilliseconds",
        SeriesKind.GAUGE,
        Of.MEMBER,
        "Milliseconds since the member started to serve.",
    ),
)

MEMBER_TYPES: Final = {
    "leader": "Leader",
    "follower": "Follower",
    "observer": "Observer",
    "standalone": "Leader",
}
"""`zk_server_state`, and the bean of a member in that state. A standalone server has none; it leads itself."""


def parse(text: str) -> dict[str, str]:
    """Return the lines of the answer, `key TAB value`. Other lines are ignored."""
    pairs = (line.partition("\t") for line in text.splitlines())
    return {key: value.strip() for key, tab, value in pairs if tab and key.startswith("zk_")}


def samples(told: Mapping[str, str], *, server_id: int, members: int) -> Iterator[Sample]:
    """Return the samples of one member. A standalone member does not report values of the ensemble: `members` replaces
    them. Values that are not numbers are ignored.
    """
    state = told.get("zk_server_state")
    if state is None:
        return
    labels = {"replicaId": str(server_id), "memberType": MEMBER_TYPES.get(state, state.capitalize())}
    known = {"zk_quorum_size": str(members), **told}
    for series in SERIES:
        value = _number(known.get(series.key))
        if value is not None:
            yield Sample(series, labels if series.of is Of.MEMBER else {}, value)


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def mode(srvr: str) -> str | None:
    """Return the mode in an answer to `srvr`: leader, follower, observer or standalone; None if it does not serve."""
    for line in srvr.splitlines():
        key, colon, value = line.partition(":")
        if colon and key == "Mode":
            return value.strip() or None
    return None
