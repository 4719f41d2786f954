"""Tests that the addresses of a cluster overlap no network in use."""

from __future__ import annotations

import json
from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube import network
from kube.host import HarnessError

SLOTS = st.integers(min_value=240, max_value=254)
NODES = range(1, network.MAXIMUM_NODES + 1)


@given(slot=SLOTS)
def test_networks_of_a_plan_lie_in_its_block_and_are_apart(slot: int) -> None:
    plan = network.Plan(slot=slot)
    machines = IPv4Network(f"{plan.gateway()}/24", strict=False)
    pods = [IPv4Network(plan.pods(number)) for number in NODES]
    apart = [machines, *pods, IPv4Network(plan.services())]

    assert all(one.subnet_of(IPv4Network(plan.block())) for one in apart)
    assert not any(one.overlaps(other) for one in apart for other in apart if one is not other)
    assert all(one.subnet_of(IPv4Network(plan.all_pods())) for one in pods)


@given(slot=SLOTS)
def test_addresses_of_a_plan_are_where_they_belong(slot: int) -> None:
    plan = network.Plan(slot=slot)
    addresses = [plan.gateway(), plan.control_plane(), *(plan.node(number) for number in NODES)]

    assert len(set(addresses)) == len(addresses)
    assert IPv4Address(plan.api_service()) == IPv4Network(plan.services()).network_address + 1
    assert IPv4Address(plan.dns_service()) in IPv4Network(plan.services())


@given(used=st.lists(st.integers(min_value=0, max_value=255)), taken=st.lists(SLOTS))
def test_a_chosen_block_is_free(used: list[int], taken: list[int]) -> None:
    networks = [IPv4Network(f"10.{second}.7.0/24") for second in used]
    free = set(range(240, 255)) - set(used) - set(taken)
    if not free:
        with pytest.raises(HarnessError, match="is free"):
            network.choose(networks, taken)
        return

    assert network.choose(networks, taken).slot in free


def test_a_machine_that_routes_all_of_10_leaves_no_room() -> None:
    with pytest.raises(HarnessError):
        network.choose([IPv4Network("10.0.0.0/8")], [])


def test_routes_are_read_without_the_default_one() -> None:
    routes = [{"dst": "default"}, {"dst": "192.0.2.0/24"}, {"dst": "10.1.2.3"}, {"dst": "0.0.0.0/0"}]

    assert network.parse_routes(json.dumps(routes)) == (IPv4Network("192.0.2.0/24"), IPv4Network("10.1.2.3/32"))
    assert network.parse_routes("") == ()


def test_names_of_links_fit_into_the_kernels_bound() -> None:
    assert len(network.namespace("odkffff", f"node{network.MAXIMUM_NODES}")) <= 15
    assert len(network.bridge("odkffff")) <= 15
