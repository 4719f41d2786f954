"""After a crash at any step of a run, the archive neither loses nor duplicates a record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from odradek.base.types import TopicPartition
from pyspark_odradek.offsets import from_spark
from pyspark_odradek.pipelines.file_store import FileStore, LocalStore
from pyspark_odradek.pipelines.manifest import BY_TOPIC, Archive, ArchiveError, ArchiveRun, Manifest, archive_files

from .conftest import Crash, CrashingStore, ObjectStore

A0 = TopicPartition("a", 0)
IDS = {"a": "1"}


@pytest.fixture(params=["local", "object"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FileStore:
    return LocalStore(tmp_path) if request.param == "local" else ObjectStore()


def stage(archive: Archive, run: ArchiveRun, *offsets: int) -> None:
    """Write the files that Spark writes, one per date. Here each offset has its own date."""
    for offset in offsets:
        archive.store.create(f"{run.staging}/date=2013-01-{offset + 1:02}/part-{offset}.snappy.parquet", b"%d" % offset)
    archive.store.create(f"{run.staging}/_SUCCESS", b"")


def archived(store: FileStore) -> list[int]:
    paths = [path for path in store.files("") if path.startswith("date=") and path.endswith(".parquet")]
    return sorted(int(store.read(path)) for path in paths)


def run_once(store: FileStore, *offsets: int, replaced: int = 0) -> Manifest:
    """Archive the offsets, which follow those of the archive or replace those of its last `replaced` runs."""
    archive = Archive(store)
    last = archive.recover()
    run = archive.next_run(last)
    stage(archive, run, *offsets)
    again = archive.history()[-replaced:] if replaced else []
    start = {A0: min(offsets)}
    end = {A0: max(offsets) + 1}
    return archive.commit(run, start, end, rows=len(offsets), topic_ids=IDS, replaced=again)


def load_until(store: FileStore, last: int) -> None:
    """As `load` does: archive the offsets that the archive does not have yet."""
    known = Archive(store).recover()
    first = 0 if known is None else from_spark(known.end).get(A0, 0)
    if first <= last:
        run_once(store, *range(first, last + 1))


def test_runs_follow_each_other(store: FileStore) -> None:
    assert run_once(store, 0, 1).run == 1
    second = run_once(store, 2)
    assert (second.run, second.start, second.end, second.rows) == (2, {"a": {"0": 2}}, {"a": {"0": 3}}, 1)
    assert archived(store) == [0, 1, 2]
    assert store.names("_staging") == []
    assert store.names("date=2013-01-01") == ["run-000001-part-0.parquet"]


def test_a_manifest_survives_its_text() -> None:
    manifest = Manifest(
        run=3,
        start={"a": {"0": 1}},
        end={"a": {"0": 2}},
        rows=1,
        files=(("x", "y"),),
        layout=BY_TOPIC,
        topic_ids=IDS,
        replaces=(1,),
        removed=("z",),
    )
    assert Manifest.from_json(manifest.to_json()) == manifest


def test_an_archive_of_the_first_version_goes_on(store: FileStore) -> None:
    old = {"run": 1, "topic": "a", "start": {"a": {"0": 0}}, "end": {"a": {"0": 1}}, "rows": 1}
    files = [["_staging/000001/date=2013-01-01/part-0.parquet", "date=2013-01-01/run-000001-part-0.parquet"]]
    store.create("_manifests/000001.json", json.dumps({**old, "files": files}).encode())
    store.create(files[0][0], b"0")
    # The next run of the first version was killed too.
    store.create("_staging/000002/date=2013-01-02/part-0.parquet", b"1")
    load_until(store, 1)
    assert archived(store) == [0, 1]


@pytest.mark.parametrize("kind", ["local", "object"])
def test_every_crash_is_repaired_by_the_next_run(kind: str, tmp_path: Path) -> None:
    """The second run crashes before or after each of its changes, and then the third run."""
    crashes = 0
    while True:
        store: FileStore = LocalStore(tmp_path / str(crashes)) if kind == "local" else ObjectStore()
        load_until(store, 1)
        crashing = CrashingStore(store, crashes)
        try:
            load_until(crashing, 4)
        except Crash:
            assert crashing.crashed
        before = archived(store)
        assert before == sorted(set(before)), "no reader sees a record twice"
        assert set(before) >= {0, 1}, "records of earlier runs stay"
        CrashingStore(store)
        load_until(store, 5)
        assert archived(store) == [0, 1, 2, 3, 4, 5]
        assert store.names("_staging") == []
        if not crashing.crashed:
            break
        crashes += 1
    assert crashes > 15


@pytest.mark.parametrize("kind", ["local", "object"])
def test_every_crash_of_a_replacement_is_repaired(kind: str, tmp_path: Path) -> None:
    crashes = 0
    while True:
        store: FileStore = LocalStore(tmp_path / str(crashes)) if kind == "local" else ObjectStore()
        for each in ((0, 1), (2,), (3,)):
            run_once(store, *each)
        crashing = CrashingStore(store, crashes)
        try:
            run_once(crashing, 2, 3, 4, replaced=2)
        except Crash:
            assert crashing.crashed
        CrashingStore(store)
        load_until(store, 4)
        assert archived(store) == [0, 1, 2, 3, 4]
        if not crashing.crashed:
            break
        crashes += 1
    assert [run.run for run in Archive(store).history()] == [1, 4]
    assert crashes > 15


def test_of_two_runs_at_a_time_the_later_one_succeeds(store: FileStore) -> None:
    run_once(store, 0)
    first = Archive(store)
    run = first.next_run(first.recover())
    stage(first, run, 1, 2)
    load_until(store, 3)
    with pytest.raises(ArchiveError, match="another run has written"):
        first.commit(run, {A0: 1}, {A0: 3}, rows=2, topic_ids=IDS)
    assert archived(store) == [0, 1, 2, 3]
    load_until(store, 4)
    assert archived(store) == [0, 1, 2, 3, 4]


def test_a_run_that_commits_while_another_starts_is_not_stopped(object_store: ObjectStore) -> None:
    """The manifest of the first run appears between the look of the second one and its own manifest."""
    first = Archive(object_store)
    run = first.next_run(first.recover())
    stage(first, run, 0)
    second = Archive(object_store)
    before = second.last()
    first.commit(run, {A0: 0}, {A0: 1}, rows=1, topic_ids=IDS)
    assert second._fence(before) is False
    last = second.recover()
    assert last is not None and last.rows == 1
    load_until(object_store, 1)
    assert archived(object_store) == [0, 1]


def test_two_runs_may_finish_the_same_run(object_store: ObjectStore) -> None:
    archive = Archive(object_store)
    run = archive.next_run(archive.recover())
    stage(archive, run, 0, 1)
    move = object_store.move

    def others_first(source: str, target: str) -> None:
        move(source, target)
        move(source, target)

    object_store.move = others_first  # type: ignore[method-assign]
    archive.commit(run, {A0: 0}, {A0: 2}, rows=2, topic_ids=IDS)
    assert archived(object_store) == [0, 1]


def test_a_file_that_vanished_is_told(store: FileStore) -> None:
    run_once(store, 0)
    store.remove("date=2013-01-01/run-000001-part-0.parquet")
    with pytest.raises(ArchiveError, match="is missing"):
        Archive(store).recover()


def test_an_archive_keeps_its_layout(store: FileStore) -> None:
    run_once(store, 0)
    with pytest.raises(ArchiveError, match="has the folders date, not topic/date"):
        Archive(store, layout=BY_TOPIC).recover()


def test_a_new_archive_knows_nothing(store: FileStore) -> None:
    archive = Archive(store)
    assert (archive.recover(), archive.history(), archive.next_run(None).number) == (None, [], 1)


def test_files_of_both_layouts_are_found(tmp_path: Path) -> None:
    for path in ("date=1/a.parquet", "topic=t/date=1/b.parquet", "_staging/1/date=1/c.parquet"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).touch()
    assert [path.name for path in archive_files(tmp_path)] == ["a.parquet", "b.parquet"]
