"""`odradek mirror` is killed under load again and again: every record arrives once and in order."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from odradek.client.admin import Admin
from odradek.client.models import NewTopic
from odradek_testkit.clients.mirror_runs import MirrorLoad, MirrorRun, copied_at_least, copied_values
from odradek_testkit.clients.two_clusters import MirroredClusters

PARTITIONS = 4
KILLS = 6


def document(clusters: MirroredClusters) -> dict[str, object]:
    """Return the configuration of the mirror."""
    return {
        "name": "killed",
        "target": {"bootstrapServers": clusters.target.bootstrap},
        "sources": [
            {
                "name": "east",
                "bootstrapServers": clusters.source.bootstrap,
                "topics": {"include": ["orders"]},
                "groups": {"include": ["billing"]},
            }
        ],
        "refreshSeconds": 1,
        "groupsSeconds": 1,
    }


@pytest.mark.slow
async def test_every_record_arrives_once_and_in_order(two_clusters: MirroredClusters, tmp_path: Path) -> None:
    async with Admin(two_clusters.source.bootstrap) as admin:
        await admin.create_topics([NewTopic(name="orders", partitions=PARTITIONS, replication_factor=1)])
    load = MirrorLoad(two_clusters.source.bootstrap, "orders", PARTITIONS)
    runs = [MirrorRun(tmp_path / "a", document(two_clusters), instance="a")]
    try:
        for kill in range(KILLS):
            before = sum(load.counts)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(load.write(10))
                await copied_at_least(two_clusters.target.bootstrap, "east.orders", PARTITIONS, before + 400)
                if kill == KILLS // 2:
                    runs.append(MirrorRun(tmp_path / "b", document(two_clusters), instance="b"))
                runs[0].kill()
                runs[0] = MirrorRun(tmp_path / "a", document(two_clusters), instance="a")
        found = await copied_values(two_clusters.target.bootstrap, "east.orders", load.counts)
        assert [run.stop() for run in runs] == [0] * len(runs), runs[0].log
    finally:
        for run in runs:
            run.kill()
    for partition, count in enumerate(load.counts):
        assert found[partition] == list(range(count)), f"partition {partition}"


def test_check_shows_what_would_be_copied(two_clusters: MirroredClusters, tmp_path: Path) -> None:
    path = tmp_path / "mirror.yaml"
    path.write_text(yaml.safe_dump(document(two_clusters)), encoding="utf-8")
    command = [sys.executable, "-m", "odradek.cli.main"]
    source = ["--bootstrap-server", two_clusters.source.bootstrap]
    subprocess.run([*command, "topic", "create", "orders", "--partitions", "2", *source], check=True)
    subprocess.run([*command, "produce", "orders", *source], check=True, input=b"a\nb\nc\n")
    check = [*command, "mirror", "--config", str(path), "--check"]
    table = subprocess.run(check, check=True, capture_output=True, text=True).stdout
    assert table.splitlines()[-1].split() == ["east", "orders", "2", "3", "east.orders", "new"]
    line = subprocess.run([*check, "--output", "json"], check=True, capture_output=True, text=True).stdout
    assert json.loads(line) == {
        "source": "east",
        "topic": "orders",
        "partitions": 2,
        "offsets": 3,
        "copy": "east.orders",
        "copyPartitions": 0,
    }


async def test_a_topic_that_was_reset_is_copied_again(two_clusters: MirroredClusters, tmp_path: Path) -> None:
    load = MirrorLoad(two_clusters.source.bootstrap, "orders", PARTITIONS)
    target = two_clusters.target.bootstrap
    async with Admin(two_clusters.source.bootstrap) as admin, Admin(target) as in_target:
        await admin.create_topics([NewTopic(name="orders", partitions=PARTITIONS, replication_factor=1)])
        await load.write(1)
        first = MirrorRun(tmp_path, document(two_clusters), instance="a")
        try:
            await copied_values(target, "east.orders", load.counts)
        finally:
            assert first.stop() == 0
        command = [sys.executable, "-m", "odradek.cli.main", "mirror", "--config", str(tmp_path / "mirror.yaml")]
        wrong = await asyncio.to_thread(subprocess.run, [*command, "--reset", "west/orders"], capture_output=True)
        assert wrong.returncode == 2
        assert b"with one of the sources east" in wrong.stderr
        reset = [*command, "--reset", "east/orders", "--yes", "--output", "json"]
        done = await asyncio.to_thread(subprocess.run, reset, check=True, capture_output=True)
        assert json.loads(done.stdout) == {"source": "east", "topic": "orders", "reset": "east.orders"}
        assert "east.orders" not in await in_target.list_topics()
    again = MirrorRun(tmp_path, document(two_clusters), instance="a")
    try:
        found = await copied_values(target, "east.orders", load.counts)
    finally:
        assert again.stop() == 0
    assert found == {number: list(range(count)) for number, count in enumerate(load.counts)}
