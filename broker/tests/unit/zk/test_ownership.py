"""The format of the operator's records of settings in ZooKeeper."""

from __future__ import annotations

import json

import pytest

from odradek.zk.ownership import BrokersOwnership, ManagedBrokers
from odradek.znode import LayoutError

OURS = BrokersOwnership(owned=frozenset({"b", "a"}), preserved=frozenset({"c"}), ids=frozenset({1, 0}))


def test_ownership_is_written_by_cluster() -> None:
    record = ManagedBrokers(clusters={"uid": OURS, "another": BrokersOwnership()})
    assert json.loads(record.encode()) == {
        "version": 1,
        "clusters": {
            "another": {"owned": [], "preserved": [], "ids": []},
            "uid": {"owned": ["a", "b"], "preserved": ["c"], "ids": [0, 1]},
        },
    }
    assert ManagedBrokers.decode(record.encode()) == record


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not JSON"),
        (b'{"version":2,"clusters":{}}', "version must be 1"),
        (b'{"version":1,"clusters":[]}', "clusters must be an object of objects"),
        (b'{"version":1,"clusters":{"uid":{"owned":1,"preserved":[],"ids":[]}}}', "owned must be a list of strings"),
        (b'{"version":1,"clusters":{"uid":{"owned":[],"preserved":[],"ids":["1"]}}}', "ids must be a list"),
    ],
)
def test_an_invalid_znode_is_named(data: bytes, message: str) -> None:
    with pytest.raises(LayoutError, match=message) as error:
        ManagedBrokers.decode(data)
    assert error.value.path == "/odradek/brokers"
