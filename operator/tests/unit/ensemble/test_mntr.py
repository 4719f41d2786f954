"""Series from the `mntr` output of a real leader of ZooKeeper 3.9.5 and of other members, and from damaged output."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_operator.ensemble.mntr import SERIES, SeriesKind, mode, parse, samples

REAL = (Path(__file__).parent / "data/mntr-leader-3.9.5.txt").read_text(encoding="utf-8")
LEADER = {"replicaId": "2", "memberType": "Leader"}

DASHBOARD = {
    "zookeeper_quorumsize",
    "zookeeper_numaliveconnections",
    "zookeeper_outstandingrequests",
    "zookeeper_avgrequestlatency",
    "zookeeper_minrequestlatency",
    "zookeeper_maxrequestlatency",
    "zookeeper_inmemorydatatree_nodecount",
    "zookeeper_inmemorydatatree_watchcount",
}
"""Series that dashboards and alerts for ZooKeeper query."""


def test_a_real_answer_gives_every_series() -> None:
    found = {sample.series.name: sample for sample in samples(parse(REAL), server_id=2, members=1)}
    assert set(found) == {series.name for series in SERIES}
    assert set(found) >= DASHBOARD
    assert found["zookeeper_quorumsize"].labels == {}
    assert found["zookeeper_quorumsize"].value == 1
    assert found["zookeeper_inmemorydatatree_nodecount"].value == 5
    assert found["zookeeper_packetssent"].series.kind is SeriesKind.COUNTER
    assert all(sample.labels == LEADER for name, sample in found.items() if name != "zookeeper_quorumsize")


@pytest.mark.parametrize(
    ("state", "member_type"),
    [("leader", "Leader"), ("follower", "Follower"), ("observer", "Observer"), ("standalone", "Leader")],
)
def test_labels_contain_the_role_of_the_member(state: str, member_type: str) -> None:
    text = REAL.replace("zk_server_state\tleader", f"zk_server_state\t{state}")
    found = {sample.series.name: sample for sample in samples(parse(text), server_id=3, members=3)}
    assert found["zookeeper_avgrequestlatency"].labels == {"replicaId": "3", "memberType": member_type}


def test_a_standalone_member_reports_the_given_size_of_the_ensemble() -> None:
    text = "zk_server_state\tstandalone\nzk_znode_count\t9\n"
    values = {sample.series.name: sample.value for sample in samples(parse(text), server_id=1, members=1)}
    assert values == {"zookeeper_quorumsize": 1, "zookeeper_inmemorydatatree_nodecount": 9}


@pytest.mark.parametrize(
    "text", ["", "This ZooKeeper instance is not currently serving requests\n", "zk_znode_count\t5\n"]
)
def test_a_member_that_does_not_serve_has_no_series(text: str) -> None:
    assert list(samples(parse(text), server_id=1, members=3)) == []


def test_values_that_are_not_numbers_are_ignored() -> None:
    text = "zk_server_state\tleader\nzk_avg_latency\tNaN\nzk_znode_count\tmany\nzk_watch_count\t2\n"
    names = [sample.series.name for sample in samples(parse(text), server_id=1, members=1)]
    assert names == ["zookeeper_quorumsize", "zookeeper_inmemorydatatree_watchcount"]


@given(st.text())
def test_any_text_is_parsed_without_an_error(text: str) -> None:
    for sample in samples(parse(text), server_id=1, members=1):
        assert sample.series in SERIES


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Zxid: 0x1\nMode: leader\nNode count: 5\n", "leader"),
        ("Mode: follower\n", "follower"),
        ("This ZooKeeper instance is not currently serving requests\n", None),
        ("imok", None),
        ("Mode: \n", None),
    ],
)
def test_the_mode_is_read_from_srvr(answer: str, expected: str | None) -> None:
    assert mode(answer) == expected


def test_no_series_occurs_twice() -> None:
    assert len({series.name for series in SERIES}) == len(SERIES) == len({series.key for series in SERIES})
