"""`odradek mirror` with Apache Kafka as the source: killed under load, every record arrives once and in order.

`ODRADEK_MIRROR_SECONDS` makes it longer.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from odradek.base.system_ports import SystemClock
from odradek.client.admin import Admin
from odradek.client.models import NewTopic
from odradek.testing.in_process import InProcessBroker
from odradek_testkit.clients.mirror_runs import MirrorLoad, MirrorRun, copied_at_least, copied_values
from odradek_testkit.interop.apache import KraftBroker, jars

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

PARTITIONS = 3


async def test_records_of_apache_kafka_arrive_once(
    tmp_path: Path, request: pytest.FixtureRequest, odradek_broker: InProcessBroker
) -> None:
    apache = KraftBroker(
        jars("3.9.1", Path(request.config.rootpath) / ".interop"), tmp_path / "apache", properties={}, heap="384m"
    )
    apache.start()
    source, target = f"127.0.0.1:{apache.port}", odradek_broker.bootstrap
    topics = {"include": ["orders"]}
    document = {
        "name": "apache",
        "target": {"bootstrapServers": target},
        "sources": [{"name": "kafka", "bootstrapServers": source, "topics": topics}],
        "refreshSeconds": 1,
    }
    mirror: MirrorRun | None = None
    clock = SystemClock()
    end_ms = clock.monotonic_ms() + 1000 * float(os.environ.get("ODRADEK_MIRROR_SECONDS", "0"))
    try:
        async with Admin(source) as admin:
            await admin.create_topics([NewTopic(name="orders", partitions=PARTITIONS, replication_factor=1)])
        load = MirrorLoad(source, "orders", PARTITIONS)
        rounds = 0
        while rounds < 3 or clock.monotonic_ms() < end_ms:
            before = sum(load.counts)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(load.write(10))
                if mirror is not None:
                    mirror.kill()
                mirror = MirrorRun(tmp_path, document, instance="a")
                await copied_at_least(target, "kafka.orders", PARTITIONS, before + 200)
            rounds += 1
        found = await copied_values(target, "kafka.orders", load.counts)
        assert mirror is not None and mirror.stop() == 0
    finally:
        if mirror is not None:
            mirror.kill()
        apache.stop()
    assert found == {number: list(range(count)) for number, count in enumerate(load.counts)}
