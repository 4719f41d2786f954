"""Manifests for people without Helm: the API server takes them all, and the operator that they bring is the chart's."""

from __future__ import annotations

from support.images import ROOT
from support.product import CHART, Release

MANIFEST = ROOT / "manifests" / "operator.yaml"
DEFINITIONS = CHART / "files" / "crds"


def test_the_api_server_takes_the_manifests_and_finds_the_release_in_them(operator_release: Release) -> None:
    """Over the release, so that each object is one that is there; a dry run, so that it stays as it is."""
    given = ("--filename", str(DEFINITIONS), "--filename", str(MANIFEST))

    said = operator_release.kubectl.run(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--output=name", *given
    )

    applied = set(said.split())
    assert {
        "customresourcedefinition.apiextensions.k8s.io/clusters.odradek.dev",
        "customresourcedefinition.apiextensions.k8s.io/topics.odradek.dev",
        "deployment.apps/odradek-operator",
        "serviceaccount/odradek-operator",
        "service/odradek-operator",
    } <= applied
    operator_release.kubectl.run("get", *sorted(applied))  # fails where one of them is not of the release
