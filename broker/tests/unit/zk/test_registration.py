from __future__ import annotations

from odradek.testing.loop import VirtualClock, run_virtual
from odradek.testing.memory_zk import MemoryZk
from odradek.zk import layout
from odradek.zk.port import ConnectionLost, SessionExpired
from odradek.zk.registration import announce_directory_failure


def test_a_failed_directory_is_announced_however_long_zookeeper_is_away() -> None:
    async def main() -> None:
        zk, clock = MemoryZk(), VirtualClock()
        await zk.ensure_path(layout.LOG_DIR_EVENTS)
        zk.failures = [ConnectionLost("away", "/"), SessionExpired("away", "/"), ConnectionLost("away", "/")]
        await announce_directory_failure(zk, clock, 7)
        await announce_directory_failure(zk, clock, 7)
        names = await zk.children(layout.LOG_DIR_EVENTS)
        assert sorted(names) == ["log_dir_event_0000000000", "log_dir_event_0000000001"]
        data, _ = await zk.get(f"{layout.LOG_DIR_EVENTS}/{names[0]}")
        assert data == b'{"version":1,"broker":7,"event":1}'

    run_virtual(main())
