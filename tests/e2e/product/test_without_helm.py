"""Tests the manifests for users without Helm: the API server accepts them, and they contain the chart's objects."""

from __future__ import annotations

from support.images import ROOT
from support.product import CHART, Release

MANIFEST = ROOT / "manifests" / "operator.yaml"
DEFINITIONS = CHART / "files" / "crds"


def test_the_api_server_takes_the_manifests_and_finds_the_release_in_them(operator_release: Release) -> None:
    """The dry run is applied over the release, so that every object exists already and none changes."""
    given = ("--filename", str(DEFINITIONS), "--filename", str(MANIFEST))

    output = operator_release.kubectl.run(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--output=name", *given
    )

    applied = set(output.split())
    assert {
        "customresourcedefinition.apiextensions.k8s.io/clusters.odradek.dev",
        "customresourcedefinition.apiextensions.k8s.io/topics.odradek.dev",
        "customresourcedefinition.apiextensions.k8s.io/users.odradek.dev",
        "customresourcedefinition.apiextensions.k8s.io/pipelines.odradek.dev",
        "customresourcedefinition.apiextensions.k8s.io/mirrors.odradek.dev",
        "deployment.apps/odradek-operator",
        "serviceaccount/odradek-operator",
        "service/odradek-operator",
    } <= applied
    operator_release.kubectl.run("get", *sorted(applied))  # fails if an object does not belong to the release
