"""After a crash at any step of a run, the archive neither loses nor duplicates a record."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from odradek.base.types import TopicPartition
from pyspark_odradek.pipelines.manifest import Archive, ArchiveError, Manifest, archive_files

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def stage(archive: Archive, *offsets: int) -> int:
    """Write the files that Spark writes, one per date. Here each offset has its own date."""
    run, staging = archive.next_run()
    for offset in offsets:
        folder = staging / f"date=2013-01-{offset + 1:02}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"offset": [offset]}), folder / f"part-{offset}.snappy.parquet")
    (staging / "_SUCCESS").touch()
    return run


def archived(folder: Path) -> list[int]:
    rows = [pq.ParquetFile(path).read().column("offset").to_pylist() for path in archive_files(folder)]
    return sorted(offset for row in rows for offset in row)


def run_once(folder: Path, *offsets: int) -> Manifest:
    with Archive(folder, "a").opened() as archive:
        start = archive.archived() or {A0: 0}
        return archive.commit(stage(archive, *offsets), start, {A0: max(offsets) + 1})


def test_runs_follow_each_other(tmp_path: Path) -> None:
    assert run_once(tmp_path, 0, 1).rows == 2
    second = run_once(tmp_path, 2)
    assert (second.run, second.start, second.end) == (2, {"a": {"0": 2}}, {"a": {"0": 3}})
    assert archived(tmp_path) == [0, 1, 2]
    assert not (tmp_path / "_staging").exists()
    assert [path.parent.name for path in archive_files(tmp_path)] == [f"date=2013-01-0{day}" for day in (1, 2, 3)]


def test_a_manifest_survives_its_text() -> None:
    manifest = Manifest(run=3, topic="a", start={"a": {"0": 1}}, end={"a": {"0": 2}}, rows=1, files=(("x", "y"),))
    assert Manifest.from_json(manifest.to_json()) == manifest


def test_a_crash_before_the_manifest_leaves_nothing(tmp_path: Path) -> None:
    run_once(tmp_path, 0)
    with Archive(tmp_path, "a").opened() as archive:
        stage(archive, 1, 2)
    assert archived(tmp_path) == [0]
    with Archive(tmp_path, "a").opened() as archive:
        assert archive.archived() == {A0: 1}
    assert run_once(tmp_path, 1, 2).run == 2
    assert archived(tmp_path) == [0, 1, 2]


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_crash_behind_the_manifest_is_finished_by_the_next_run(tmp_path: Path, moved: int) -> None:
    run_once(tmp_path, 0, 1)
    # Restore the state after a crash when `moved` of the two files were in place.
    files = [Path(path) for path in archive_files(tmp_path)]
    manifest = Archive(tmp_path, "a").last()
    assert manifest is not None
    for (source, _), final in list(zip(manifest.files, files, strict=True))[moved:]:
        staged = tmp_path / source
        staged.parent.mkdir(parents=True)
        shutil.move(final, staged)
    assert archived(tmp_path) == [0, 1][:moved]
    run_once(tmp_path, 2)
    assert archived(tmp_path) == [0, 1, 2]


def test_a_file_that_vanished_is_told(tmp_path: Path) -> None:
    run_once(tmp_path, 0)
    archive_files(tmp_path)[0].unlink()
    with pytest.raises(ArchiveError, match="is missing"), Archive(tmp_path, "a").opened():
        pass


def test_an_archive_has_one_topic_and_one_writer(tmp_path: Path) -> None:
    run_once(tmp_path, 0)
    with pytest.raises(ArchiveError, match="topic a, not of b"), Archive(tmp_path, "b").opened():
        pass
    with (
        Archive(tmp_path, "a").opened(),
        pytest.raises(ArchiveError, match="another run"),
        Archive(tmp_path, "a").opened(),
    ):
        pass


def test_a_new_archive_knows_nothing(tmp_path: Path) -> None:
    with Archive(tmp_path / "new", "a").opened() as archive:
        assert (archive.archived(), archive.last(), archive.next_run()[0]) == ({}, None, 1)
