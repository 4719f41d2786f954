"""Manifest files: which are read, and when changed ones are read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek_operator.crds import Resources
from odradek_operator.crds.documents import DocumentError
from odradek_operator.crds.problems import ResourceError
from odradek_operator.embedded.manifests import MAX_BYTES, Manifests, only_cluster
from odradek_operator.errors import EmbeddedError

CLUSTER = "{apiVersion: odradek.dev/v1, kind: Cluster, metadata: {name: demo}, spec: {}}\n"


def topic(name: str, spec: str = "{cluster: demo}") -> str:
    return f"{{apiVersion: odradek.dev/v1, kind: Topic, metadata: {{name: {name}}}, spec: {spec}}}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "topics.yml").write_text(topic("a") + "---\n" + topic("b"))
    (tmp_path / "README.md").write_text("not YAML: [")
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "more.yaml").write_text("not YAML: [")
    return tmp_path


def names(resources: Resources | None) -> list[str] | None:
    return None if resources is None else sorted(resources.topics)


def test_a_folder_gives_its_yaml_files(folder: Path) -> None:
    assert names(Manifests([folder]).load()) == ["a", "b"]


def test_a_file_that_is_named_twice_counts_once(folder: Path) -> None:
    assert names(Manifests([folder, folder / "topics.yml"]).load()) == ["a", "b"]


def test_a_change_counts_when_it_has_kept_still(folder: Path) -> None:
    manifests = Manifests([folder])
    manifests.load()
    assert manifests.reload() is None
    (folder / "topics.yml").write_text(topic("a"))
    assert manifests.reload() is None
    (folder / "topics.yml").write_text(topic("a") + "---\n" + topic("c"))
    assert manifests.reload() is None
    assert names(manifests.reload()) == ["a", "c"]
    assert manifests.reload() is None


def test_files_that_come_and_go_are_changes(folder: Path) -> None:
    manifests = Manifests([folder])
    manifests.load()
    (folder / "new.yaml").write_text(topic("n"))
    (folder / "topics.yml").unlink()
    manifests.reload()
    assert names(manifests.reload()) == ["n"]


def test_what_is_wrong_is_told_once_and_read_again_when_it_changes(folder: Path) -> None:
    manifests = Manifests([folder])
    manifests.load()
    (folder / "topics.yml").write_text(topic("a", "{cluster: demo, partitions: 0}"))
    assert manifests.reload() is None
    with pytest.raises(ResourceError):
        manifests.reload()
    assert manifests.reload() is None
    (folder / "topics.yml").write_text(topic("a"))
    manifests.reload()
    assert names(manifests.reload()) == ["a"]


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedError, match="There is no file or folder"):
        Manifests([tmp_path / "none.yaml"]).load()
    with pytest.raises(EmbeddedError, match=r"holds no \.yaml or \.yml file"):
        Manifests([tmp_path]).load()
    path = tmp_path / "a.yaml"
    path.write_bytes(b"a: \xff")
    with pytest.raises(EmbeddedError, match="is not UTF-8 text: byte 3"):
        Manifests([path]).load()
    path.write_text("a: [")
    with pytest.raises(DocumentError, match=r"a\.yaml:1"):
        Manifests([path]).load()
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(EmbeddedError, match="larger than 10 MiB"):
        Manifests([path]).load()


def test_exactly_one_cluster_is_needed(folder: Path) -> None:
    assert only_cluster(Manifests([folder]).load()).name == "demo"
    with pytest.raises(EmbeddedError, match="found none"):
        only_cluster(Resources(clusters={}, topics={}))
    (folder / "other.yaml").write_text(CLUSTER.replace("demo", "other"))
    with pytest.raises(EmbeddedError, match="found demo, other"):
        only_cluster(Manifests([folder]).load())
