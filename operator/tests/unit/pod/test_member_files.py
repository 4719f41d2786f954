"""The files and the command of an ensemble member, from the properties that the operator writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.setting_definitions import parse_properties
from odradek_operator.errors import PodError
from odradek_operator.objects.properties_file import render
from odradek_operator.pod.identity import MemberPod
from odradek_operator.pod.member_files import (
    check_member,
    client_port,
    data_folder,
    heap_mib,
    java_options,
    memory_limit,
    peers,
    zoo_cfg,
)

POD = MemberPod(cluster="demo", namespace="events", ordinal=1, members=3)
TEXT = render({"dataDir": "/var/lib/odradek/data", "clientPort": "2181", "tickTime": "2000"}, header="h")
GIB = 1 << 30


def test_members_are_named_by_the_headless_service() -> None:
    pairs = parse_properties(zoo_cfg(TEXT, peers(POD), protected=False))
    host = "demo-zookeeper-{}.demo-zookeeper-nodes.events.svc:2888:3888"
    assert {key: value for key, value in pairs.items() if key.startswith("server.")} == {
        "server.1": host.format(0),
        "server.2": host.format(1),
        "server.3": host.format(2),
    }
    assert pairs["tickTime"] == "2000"


def test_data_directory_and_port_are_read() -> None:
    assert data_folder(TEXT) == Path("/var/lib/odradek/data")
    assert client_port(TEXT) == 2181
    with pytest.raises(PodError, match="no dataDir"):
        data_folder("clientPort=1\n")
    with pytest.raises(PodError, match="clientPort='x'"):
        client_port("clientPort=x\n")


@pytest.mark.parametrize("noted", [None, "2", "2\n"])
def test_a_data_directory_that_is_new_or_its_own_is_accepted(noted: str | None) -> None:
    check_member(noted, POD)


@pytest.mark.parametrize("noted", ["1", "", "22"])
def test_a_data_directory_of_another_member_is_refused(noted: str) -> None:
    with pytest.raises(PodError, match="this pod is member 2"):
        check_member(noted, POD)


@pytest.mark.parametrize(
    ("wanted", "limit", "expected"),
    [
        (None, None, 512),
        (None, GIB, 512),
        (None, 64 << 20, 96),
        (None, 64 * GIB, 4096),
        ("300", GIB, 300),
        ("", 2 * GIB, 1024),
    ],
)
def test_the_heap_follows_from_the_setting_or_the_memory_limit(
    wanted: str | None, limit: int | None, expected: int
) -> None:
    assert heap_mib(wanted, limit) == expected


@pytest.mark.parametrize("wanted", ["1g", "0", "95", "-1"])
def test_an_invalid_heap_is_refused(wanted: str) -> None:
    with pytest.raises(PodError, match="ZOOKEEPER_HEAP_MIB"):
        heap_mib(wanted, None)


@pytest.mark.parametrize(
    ("text", "expected"), [("max\n", None), ("9223372036854771712\n", None), ("1073741824\n", GIB), ("", None)]
)
def test_the_memory_limit_of_the_container(text: str, expected: int | None) -> None:
    assert memory_limit(text) == expected


def test_small_heaps_use_the_serial_collector() -> None:
    assert "-XX:+UseSerialGC" in java_options(512, Path("/l"))
    assert "-XX:+UseG1GC" in java_options(1024, Path("/l"))
    assert "-Xmx1024m" in java_options(1024, Path("/l"))
