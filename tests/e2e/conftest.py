"""Fixtures of the end-to-end tests: a real Kubernetes cluster, a namespace, images and volumes.

A test below this folder that uses the cluster gets the mark `e2e`, and also `e2e_short` unless it has the mark
`e2e_full`. These tests run only when the command line selects them by mark (`-m e2e_short`) or by path; plain `pytest`
deselects them. If $KUBECONFIG is set, they use that cluster; otherwise they start one. Tests that kill a node or stop
the API server need the harness's own cluster: they use the fixture `own_cluster` and are deselected if $KUBECONFIG is
set.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from kube import cluster as kube_cluster  # noqa: E402
from support import diagnostics, figures  # noqa: E402
from support.audit import AuditLog  # noqa: E402
from support.helm import Helm  # noqa: E402
from support.images import Images  # noqa: E402
from support.kubectl import Kubectl  # noqa: E402
from support.kubernetes import Kubernetes  # noqa: E402
from support.volumes import Volumes  # noqa: E402

NODES = 3
TEST_SECONDS = 1800
NAMED_CLUSTER = "ODRADEK_E2E_CLUSTER"
"""The name of a cluster started with `kube up --name`. The tests may break and repair it, and they leave it running."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that need a cluster, and deselect them unless the command line selects them."""
    asked = "e2e" in config.option.markexpr or _named_by_path(config)
    foreign = bool(os.environ.get("KUBECONFIG"))
    left_out = []
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if HERE not in item.path.parents or "kubernetes" not in fixtures:
            continue
        item.add_marker("e2e")
        if item.get_closest_marker("e2e_full") is None:
            item.add_marker("e2e_short")
        item.add_marker(pytest.mark.timeout(TEST_SECONDS))
        if not asked or (foreign and "own_cluster" in fixtures):
            left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _named_by_path(config: pytest.Config) -> bool:
    named = ((config.invocation_params.dir / str(word).split("::")[0]).resolve() for word in config.args)
    return any(path == HERE or HERE in path.parents for path in named)


@pytest.fixture(scope="session")
def say(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Report progress at once. pytest captures all output, so capturing is suspended for each line."""
    capturing = request.config.pluginmanager.getplugin("capturemanager")
    began = time.monotonic()

    def write(text: str) -> None:
        suspended = capturing.global_and_fixture_disabled() if capturing is not None else nullcontext()
        with suspended:
            sys.stderr.write(f"\n[e2e {time.monotonic() - began:5.0f} s] {text}")
            sys.stderr.flush()

    return write


@pytest.fixture(scope="session")
def kubernetes(say: Callable[[str], None]) -> Iterator[Kubernetes]:
    """The cluster of $KUBECONFIG, or a cluster of three nodes that lasts for this session."""
    if named := os.environ.get("KUBECONFIG"):
        kubectl, helm = (_installed(program) for program in ("kubectl", "helm"))
        config = Path(named)
        foreign = Kubernetes(
            kubectl=Kubectl(program=kubectl, kubeconfig=config), helm=Helm(program=helm, kubeconfig=config), own=None
        )
        yield foreign
        foreign.await_removals()
        return
    if named := os.environ.get(NAMED_CLUSTER):
        attached = _of(kube_cluster.Cluster.attach(named, say=say))
        yield attached
        attached.await_removals()
        return
    with kube_cluster.running(NODES, say=say) as own:
        yield _of(own)


def _of(own: kube_cluster.Cluster) -> Kubernetes:
    return Kubernetes(
        kubectl=Kubectl(program=str(own.programs / "kubectl"), kubeconfig=own.kubeconfig),
        helm=Helm(program=str(own.programs / "helm"), kubeconfig=own.kubeconfig),
        own=own,
    )


def _installed(program: str) -> str:
    found = shutil.which(program)
    assert found, f"{program} is not on the PATH: a cluster of your own ($KUBECONFIG) needs it"
    return found


@pytest.fixture
def own_cluster(kubernetes: Kubernetes) -> kube_cluster.Cluster:
    """The harness's own cluster. A test may break its nodes and its API server; they are repaired after the test."""
    assert kubernetes.own is not None, "left out at collection when the cluster is a foreign one"
    return kubernetes.own


@pytest.fixture
def kubectl(kubernetes: Kubernetes, namespace: str) -> Kubectl:
    """kubectl in this test's namespace."""
    return kubernetes.kubectl.within(namespace)


@pytest.fixture(scope="session")
def helm(kubernetes: Kubernetes) -> Helm:
    """helm on the cluster under test."""
    return kubernetes.helm


@pytest.fixture
def namespace(kubernetes: Kubernetes) -> Iterator[str]:
    """A namespace for one test. It is deleted afterwards with everything in it."""
    name = f"e2e-{secrets.token_hex(3)}"
    kubernetes.make_namespace(name)
    yield name
    _mend(kubernetes)
    kubernetes.remove_namespace(name)


def _mend(kubernetes: Kubernetes) -> None:
    """Repair what a test broke. Otherwise pods on a node that is down would never end."""
    if kubernetes.own is not None:
        kubernetes.own.mend()


@pytest.fixture
def volumes(kubernetes: Kubernetes, namespace: str) -> Iterator[Volumes]:
    """Local disks for one test. Their folders stay until the namespace is gone, so no running pod loses its disk."""
    made = Volumes(kubectl=kubernetes.kubectl, own=kubernetes.own, prefix=namespace)
    yield made
    _mend(kubernetes)
    kubernetes.remove_namespace(namespace, then=made.erase)
    made.withdraw()


@pytest.fixture(scope="session")
def images(kubernetes: Kubernetes, say: Callable[[str], None]) -> Images:
    """The project's images. `images.bring("broker")` builds and loads an image unless the nodes have it already."""
    return Images(kubernetes.own, say)


@pytest.fixture
def audit(own_cluster: kube_cluster.Cluster) -> AuditLog:
    """The requests to the API server from now on."""
    return AuditLog(own_cluster.audit_log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print at the end of the session, where people look, the figures that tests reported."""
    if lines := figures.lines():
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """When a test fails, save the state of the cluster before fixtures remove it."""
    report = yield
    found = getattr(item, "funcargs", {}).get("kubernetes")
    if report.failed and report.when != "teardown" and isinstance(found, Kubernetes):
        logs = found.own.run.folder / "logs" if found.own else None
        folder = diagnostics.keep(found.kubectl, item.nodeid, logs)
        report.sections.append(("Kubernetes", f"logs, events and objects are kept in {folder}"))
    return report
