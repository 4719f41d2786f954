"""Tests what the harness writes for other programs: images, configurations and cache keys."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import shutil
import tarfile
from pathlib import Path

import pytest

from kube import certificates, dns, node, packages, pause, versions
from kube.state import Run
from support import diagnostics, images

RUN = Run(folder=Path("/tmp/odradek-e2e-x"), tag="odk0001", slot=250, nodes=3)


def test_the_version_that_is_stamped_is_the_one_that_is_built() -> None:
    required = (versions.TOOLS.folder / "go.mod").read_text(encoding="utf-8")

    assert f"k8s.io/kubernetes v{versions.KUBERNETES}\n" in required


def test_the_version_of_cert_manager_is_the_one_that_is_built() -> None:
    required = (versions.ISSUING.folder / "go.mod").read_text(encoding="utf-8")
    assert f"github.com/cert-manager/cert-manager v{versions.CERT_MANAGER}\n" in required


def test_the_oldest_version_is_the_one_that_is_built_and_that_the_chart_names() -> None:
    required = (versions.OLDEST.folder / "go.mod").read_text(encoding="utf-8")
    chart = (images.ROOT / "charts/odradek/Chart.yaml").read_text(encoding="utf-8")

    assert f"k8s.io/kubernetes v{versions.OLDEST_KUBERNETES}\n" in required
    major, minor, _ = versions.OLDEST_KUBERNETES.split(".")
    assert f'kubeVersion: ">={major}.{minor}.0-0"\n' in chart


def test_every_program_of_the_module_is_built() -> None:
    required = (versions.TOOLS.folder / "go.mod").read_text(encoding="utf-8")
    of_others = re.search(r"^tool \((.*?)^\)", required, re.DOTALL | re.MULTILINE)
    own = {f"./{path.parent.name}" for path in versions.TOOLS.folder.glob("*/main.go")}

    assert of_others is not None
    assert {*of_others[1].split(), *own} == set(versions.TOOLS.packages)
    assert {"kubectl", "helm", "kubelet", "pause", "coredns", "etcd"} < set(versions.TOOLS.programs)


def test_the_cache_key_follows_sources_and_compiler(tmp_path: Path) -> None:
    copied = tmp_path / "tools"
    shutil.copytree(versions.TOOLS.folder, copied)
    module = dataclasses.replace(versions.TOOLS, folder=copied)
    before = versions.TOOLS.cache_key("go1")

    assert module.cache_key("go1") == before
    assert module.cache_key("go2") != before
    assert dataclasses.replace(module, stamps=()).cache_key("go1") != before
    for name in ("go.sum", "etcd/main.go"):
        with (copied / name).open("a", encoding="utf-8") as file:
            file.write("x")
        assert module.cache_key("go1") != before
        shutil.copy(versions.TOOLS.folder / name, copied / name)


def test_missing_packages_are_those_without_their_sign() -> None:
    assert packages.missing(lambda _: True) == ()
    assert packages.missing(lambda sign: sign != "/usr/lib/cni/bridge") == ("containernetworking-plugins",)


def test_the_pause_archive_is_what_docker_would_save() -> None:
    content = pause.archive(b"program", "localhost/pause:1", "amd64")
    assert content == pause.archive(b"program", "localhost/pause:1", "amd64")

    with tarfile.open(fileobj=io.BytesIO(content)) as outer:
        manifest = json.loads(outer.extractfile("manifest.json").read())  # type: ignore[union-attr]
        layer = outer.extractfile(manifest[0]["Layers"][0])
        assert manifest[0]["RepoTags"] == ["localhost/pause:1"]
        with tarfile.open(fileobj=layer) as inner:
            program = inner.getmember("pause")
            assert program.mode == 0o755


def test_two_nodes_share_nothing() -> None:
    def texts(number: int) -> str:
        return (
            node.containerd_settings(RUN, number) + node.pod_network(RUN, number) + node.kubelet_settings(RUN, number)
        )

    paths = [set(re.findall(r"/tmp/odradek-e2e-x/[^\"]+", texts(number))) for number in (1, 2)]
    assert paths[0] & paths[1] == {f"{RUN.pki}/ca.crt"}
    assert RUN.plan.pods(1) in texts(1) and RUN.plan.pods(1) not in texts(2)


def test_names_of_the_api_server_and_of_dns_fit_the_plan() -> None:
    assert f"IP:{RUN.plan.api_service()}" in certificates.api_names(RUN)
    assert RUN.plan.control_plane() in certificates.api_names(RUN)
    service, endpoints = dns.objects(RUN)
    assert service["spec"]["clusterIP"] == json.loads(node.kubelet_settings(RUN, 1))["clusterDNS"][0]
    assert endpoints["endpoints"][0]["addresses"] == [RUN.plan.control_plane()]
    assert str(RUN.pki / "dns.conf") in dns.corefile(RUN)


def test_every_node_has_an_account_of_its_own() -> None:
    found = certificates.accounts(2)

    assert found["node2"] == ("system:node:node2", "system:nodes")
    assert "node3" not in found


def test_images_are_built_on_the_base_that_was_named() -> None:
    own = images.build_command(["broker", "operator"], Path("/out"), {})
    named = images.build_command(["broker"], Path("/out"), {images.BASE: "python:3.12-slim"})

    assert own[own.index("--base") + 1] == "debian"
    assert named[named.index("--base") + 1] == "python:3.12-slim"
    assert own[-4:] == ["--only", "broker", "--only", "operator"]


def test_ready_images_are_taken_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(images.READY, str(tmp_path))
    (tmp_path / "broker.tar").touch()

    assert images.ensure(["broker"], lambda _: None) == {"broker": tmp_path / "broker.tar"}
    with pytest.raises(images.ImagesError, match=r"without operator\.tar"):
        images.ensure(["broker", "operator"], lambda _: None)


def test_a_failed_test_has_a_folder_of_its_own() -> None:
    found = diagnostics.folder_of("tests/e2e/test_roll.py::test_roll[3 nodes]", Path("/x"))

    assert found == Path("/x/test_roll.py-test_roll-3-nodes")
