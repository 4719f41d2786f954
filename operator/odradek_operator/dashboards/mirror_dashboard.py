"""The dashboard of mirrors: their lag, rates and failures. Pure.

The series come from the pods of Mirror resources, and have their namespace and the label `mirror`, but no cluster: a
mirror connects several.
"""

from __future__ import annotations

from typing import Final

from odradek_operator.dashboards import queries
from odradek_operator.dashboards.grafana import Dashboard, Panel, PanelType, Row, Variable, lines

_LAG_RECORDS: Final = "odradek_mirror_lag_records"
_IN: Final = 'namespace="$namespace", mirror=~"$mirror"'
_BY: Final = f"by ({queries.MIRROR_SOURCE})"
_BY_TOPIC: Final = f"by ({queries.MIRROR_SOURCE}, topic)"
_SOURCE: Final = "{{mirror}} {{source}}"
_TOPIC: Final = "{{mirror}} {{source}} {{topic}}"

_VARIABLES: Final = (
    Variable(name="namespace", label="Namespace", series=f'{_LAG_RECORDS}{{mirror!=""}}', value="namespace"),
    Variable(
        name="mirror",
        label="Mirror",
        series=f'{_LAG_RECORDS}{{namespace="$namespace", mirror!=""}}',
        value="mirror",
        several=True,
    ),
)

_STATE: Final = Row(
    title="State",
    panels=(
        Panel(
            title="Lag",
            description="Records of the sources that are not copied yet.",
            queries=lines(f"sum({_LAG_RECORDS}{{{_IN}}})"),
            type=PanelType.NUMBER,
            width=6,
            height=4,
        ),
        Panel(
            title="Age of the copies",
            description="Age of the last copied record while others wait, the maximum over partitions.",
            queries=lines(f"max(odradek_mirror_lag_seconds{{{_IN}}})"),
            type=PanelType.NUMBER,
            unit="s",
            width=6,
            height=4,
        ),
        Panel(
            title="Stopped partitions",
            description="Partitions that an error has stopped. The status of the Mirror has the errors.",
            queries=lines(f"sum(odradek_mirror_partition_failed{{{_IN}}})"),
            type=PanelType.NUMBER,
            width=6,
            height=4,
            bad=1,
        ),
        Panel(
            title="Partitions",
            description="Partitions that the mirrors copy.",
            queries=lines(f"count({_LAG_RECORDS}{{{_IN}}})"),
            type=PanelType.NUMBER,
            width=6,
            height=4,
        ),
    ),
)

_LAG: Final = Row(
    title="Lag",
    panels=(
        Panel(
            title="Lag of a source",
            description="Records that are not copied yet, over all partitions of a source.",
            queries=lines(f"sum {_BY} ({_LAG_RECORDS}{{{_IN}}})", _SOURCE),
        ),
        Panel(
            title="Age of the copies of a source",
            description="Age of the last copied record while others wait, the maximum over partitions of a source.",
            queries=lines(f"max {_BY} (odradek_mirror_lag_seconds{{{_IN}}})", _SOURCE),
            unit="s",
        ),
        Panel(
            title="Topics with the largest lag",
            description="The ten topics with most records that are not copied yet.",
            queries=lines(f"topk(10, sum {_BY_TOPIC} ({_LAG_RECORDS}{{{_IN}}}))", _TOPIC),
        ),
    ),
)

_RATES: Final = Row(
    title="Rates",
    panels=(
        Panel(
            title="Copied records",
            description="Records per second that are copied from a source.",
            queries=lines(f"sum {_BY} (rate(odradek_mirror_records_total{{{_IN}}}[$__rate_interval]))", _SOURCE),
            unit="cps",
        ),
        Panel(
            title="Copied bytes",
            description="Bytes per second of the copied batches, as they are compressed in the source.",
            queries=lines(f"sum {_BY} (rate(odradek_mirror_bytes_total{{{_IN}}}[$__rate_interval]))", _SOURCE),
            unit="Bps",
        ),
        Panel(
            title="Transactions",
            description="Transactions per second in the target, by their end. Aborted ones are repeated.",
            queries=lines(
                f"sum by (namespace, mirror, end) (rate(odradek_mirror_transactions_total{{{_IN}}}[$__rate_interval]))",
                "{{mirror}} {{end}}",
            ),
            unit="cps",
        ),
    ),
)

DASHBOARD: Final = Dashboard(
    name="mirrors",
    title="Odradek: mirrors",
    description="Mirrors of topics between clusters: their lag, rates and failures.",
    variables=_VARIABLES,
    rows=(_STATE, _LAG, _RATES),
)
