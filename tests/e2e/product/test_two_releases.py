"""Tests a second release: it is on standby where the first one is active, reports that, and writes nothing there."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pytest

from support.audit import AuditLog
from support.helm import HelmError
from support.kubectl import Kubectl
from support.kubernetes import Kubernetes
from support.product import CRDS, NODE_READER, Demo, Release
from support.waiting import eventually

STANDBY: Final = "standby: the scope of all namespaces is served by"


def state(release: Release, path: str = "readyz") -> str:
    """The response of a release's operator to a request for `path`."""
    service = f"{release.name}-operator:http"
    return release.kubectl.run(
        "get", "--raw", f"/api/v1/namespaces/{release.kubectl.namespace}/services/{service}/proxy/{path}"
    )


@pytest.fixture
def beside(operator_release: Release) -> Iterator[Release]:
    """A release in the namespace of the first one, with the same scope."""
    made = replace(operator_release, name="beside")
    made.install(crds={"install": False})
    yield made
    made.helm.uninstall(made.name, namespace=made.kubectl.namespace)
    made.kubectl.delete("pod", check_of(made))


@pytest.fixture
def elsewhere(kubernetes: Kubernetes, operator_release: Release, demo: Demo) -> Iterator[Release]:
    """A release in another namespace that watches the example cluster's namespace, which the first release serves."""
    namespace = f"e2e-{secrets.token_hex(3)}"
    kubernetes.make_namespace(namespace)
    made = replace(operator_release, name="second", kubectl=operator_release.kubectl.within(namespace))
    made.install(crds={"install": False}, watchNamespaces=[demo.kubectl.namespace])
    yield made
    made.helm.uninstall(made.name, namespace=namespace)
    kubernetes.remove_namespace(namespace)


def check_of(release: Release) -> str:
    """The name of the pod of `helm test`. The pod stays if the test fails."""
    return f"{release.name}-operator-check"


def leases(kubectl: Kubectl) -> dict[tuple[str, str], str]:
    """The holders of all Leases, by namespace and name."""
    return {
        (lease["metadata"]["namespace"], lease["metadata"]["name"]): lease["spec"].get("holderIdentity", "")
        for lease in kubectl.list("lease")
        if lease["metadata"]["name"].startswith("odradek-operator")
    }


def test_a_second_release_in_the_same_namespace_stands_by_and_helm_test_says_so(
    operator_release: Release, demo: Demo, beside: Release, kubernetes: Kubernetes
) -> None:
    assert STANDBY in eventually(lambda: state(beside), lambda text: STANDBY in text, what="a standby")

    with pytest.raises(HelmError):
        beside.test()

    output = beside.kubectl.logs(check_of(beside))
    assert "is ready but serves no namespace" in output
    assert "served by odradek-system/odradek-operator-" in output
    assert f"serving all namespaces: {demo.kubectl.namespace}" in state(operator_release)
    holders = leases(kubernetes.kubectl)
    assert all(holder.startswith("odradek-system/odradek-operator-") for holder in holders.values() if holder)
    assert {name for (_, name), holder in holders.items() if holder} == {
        "odradek-operator",
        "odradek-operator-all-namespaces",
    }
    beside.helm.uninstall(beside.name, namespace=beside.kubectl.namespace)
    for kind, name in [("clusterrole", NODE_READER), *(("crd", name) for name in CRDS)]:
        assert kubernetes.kubectl.get(kind, name), "it belongs to the first release"


def test_a_release_elsewhere_with_an_overlapping_scope_writes_nothing_there(
    demo: Demo, elsewhere: Release, audit: AuditLog
) -> None:
    namespace = demo.kubectl.namespace
    sentence = f"standby: namespace {namespace} is served by odradek-system/odradek-operator-"
    eventually(lambda: state(elsewhere), lambda text: sentence in text, what="a standby")
    audit.mark()

    demo.make_topic("one-writer")

    def writers() -> set[str]:
        found = audit.requests(lambda request: request.writes and request.namespace == namespace)
        return {request.user for request in found if request.user.endswith("-operator")}

    assert eventually(writers, what="writes of an operator") == {
        "system:serviceaccount:odradek-system:odradek-operator"
    }
    demo.kubectl.delete("topic.odradek.dev", "one-writer")
