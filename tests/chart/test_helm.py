"""Tests the chart with Helm: stored renderings are current, and invalid values are refused with a message.

The tests use $HELM, helm on the PATH, or the helm that the end-to-end tests have built. The last one determines their
level.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from chart_files import CHART, GOLDEN, RENDERED, ROOT, objects, read

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_short]

KUBE_VERSION = "1.34.0"


@pytest.fixture(scope="session")
def helm() -> str:
    """The path of helm. Fails with instructions if there is none."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "odradek-e2e"
    found = os.environ.get("HELM") or shutil.which("helm")
    built = sorted(path for path in cache.rglob("helm") if path.is_file() and os.access(path, os.X_OK))
    assert found or built, "Helm is needed: install it, name it in $HELM, or let `make e2e` build it"
    return found or str(built[0])


@pytest.fixture
def environment(helm: str, tmp_path: Path) -> dict[str, str]:
    """The environment of Helm with separate folders."""
    homes = {f"HELM_{name}_HOME": str(tmp_path) for name in ("CACHE", "CONFIG", "DATA")}
    return {**os.environ, **homes, "HELM": helm}


def rendering(name: str, environment: dict[str, str]) -> str:
    """The output of `charts/render`."""
    return subprocess.run(
        [ROOT / "charts/render", name], env=environment, capture_output=True, text=True, check=True
    ).stdout


def template(environment: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    """Run `helm template` with options."""
    return subprocess.run(
        [environment["HELM"], "template", "demo", str(CHART), "--kube-version", KUBE_VERSION, *options],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", RENDERED)
def test_stored_renderings_are_fresh(name: str, environment: dict[str, str]) -> None:
    assert rendering(name, environment) == read(GOLDEN / f"{name}.yaml"), "run `make chart` and look at the changes"


def test_the_manifest_without_helm_is_fresh(environment: dict[str, str]) -> None:
    assert rendering("operator", environment) == read(ROOT / "manifests/operator.yaml"), "run `make chart`"


def test_definitions_are_installed_as_generated_and_kept(environment: dict[str, str]) -> None:
    found = {
        each["metadata"]["name"]: each
        for each in objects(template(environment).stdout)
        if each["kind"] == "CustomResourceDefinition"
    }
    files = [yaml.safe_load(read(path)) for path in sorted((CHART / "files/crds").glob("*.yaml"))]
    assert found == {each["metadata"]["name"]: each for each in files}
    kinds = ("clusters", "topics", "users", "pipelines", "mirrors")
    assert {*found} == {f"{kind}.odradek.dev" for kind in kinds}
    for each in found.values():
        assert each["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_dashboards_are_handed_over_as_they_are(environment: dict[str, str]) -> None:
    done = template(environment, "--set", "monitoring.dashboards.enabled=true")
    found = {
        name.removeprefix("odradek-"): json.loads(text)
        for each in objects(done.stdout)
        if each["kind"] == "ConfigMap" and each["metadata"]["labels"].get("grafana_dashboard") == "1"
        for name, text in each["data"].items()
    }
    assert found == {path.name: json.loads(read(path)) for path in (CHART / "dashboards").iterdir()}


def test_rules_are_handed_over_but_for_those_that_are_left_out(environment: dict[str, str]) -> None:
    switches = "monitoring.prometheusRule.enabled=true,monitoring.prometheusRule.disabled={BrokerDown,OperatorDown}"
    (rule,) = [
        each for each in objects(template(environment, "--set", switches).stdout) if each["kind"] == "PrometheusRule"
    ]
    wanted = yaml.safe_load(read(CHART / "rules/odradek.yaml"))["groups"]
    for group in wanted:
        group["rules"] = [each for each in group["rules"] if each["alert"] not in ("BrokerDown", "OperatorDown")]
    assert rule["spec"]["groups"] == wanted


def test_old_kubernetes_gets_no_admission_policies(environment: dict[str, str]) -> None:
    """Helm's default list of API versions does not contain this kind, as on a cluster before 1.30."""
    assert {"ValidatingAdmissionPolicy"}.isdisjoint(each["kind"] for each in objects(template(environment).stdout))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("replicas=2,leaderElection=false", "replicas above 1 require leaderElection"),
        ("monitoring.prometheusRule.enabled=true,monitoring.prometheusRule.disabled={Nonsense}", "no alert Nonsense"),
        ("serviceAccount.create=false", "serviceAccount.name is required"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("logLevel=loud", "logLevel"),
        ("watchNamespaces={Orders}", "watchNamespaces"),
        ("replicaCount=2", "replicaCount"),
        ("image.tag=1", "tag"),
        ("replicas=9", "replicas"),
    ],
)
def test_nonsense_is_refused(values: str, message: str, environment: dict[str, str]) -> None:
    done = template(environment, "--set", values)
    assert done.returncode != 0
    assert message in done.stderr


def test_lint_has_nothing_to_say(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [environment["HELM"], "lint", "--strict", str(CHART)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "WARNING" not in done.stdout
