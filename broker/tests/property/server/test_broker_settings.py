"""For any content of ZooKeeper, each setting has the value of the highest level with a valid value."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.config import BROKER_SETTINGS, BrokerConfig
from odradek.server.configs.broker_configs import BrokerSettings
from odradek.testing.memory_zk import MemoryZk
from odradek.zk import layout
from odradek_testkit.loop import run_virtual

FILE = {"broker.id": "1", "zookeeper.connect": "localhost", "log.retention.ms": "1000", "message.max.bytes": "2000"}
GOOD = {
    "log.retention.ms": st.integers(-1, 10**6),
    "message.max.bytes": st.integers(0, 10**6),
    "min.insync.replicas": st.integers(1, 9),
    "max.connections": st.integers(0, 1000),
}
DEFAULTS = {"min.insync.replicas": 1, "max.connections": 2**31 - 1}
bad = st.sampled_from(
    [("log.retention.ms", "soon"), ("broker.id", "7"), ("num.partitions", "7"), ("no.such.key", "7"), ("", "")]
)
levels = st.tuples(st.fixed_dictionaries({}, optional=GOOD), st.lists(bad).map(dict)).map(
    lambda both: {**both[1], **{name: str(value) for name, value in both[0].items()}}
)


@given(levels, levels)
def test_precedence(defaults: dict[str, str], own: dict[str, str]) -> None:
    static = BrokerConfig.parse(FILE)[0]

    async def main() -> BrokerSettings:
        zk = MemoryZk()
        for name, content in ((layout.DEFAULT_ENTITY, defaults), ("1", own)):
            await zk.create(layout.config_path("brokers", name), layout.encode_config(content), make_parents=True)
        settings = BrokerSettings(zk, static, FILE)
        await settings.load()
        return settings

    settings = run_virtual(main())
    assert (settings.config.broker_id, settings.config.num_partitions) == (1, 1)
    for name in GOOD:
        candidates = [
            (level[name], source)
            for level, source in ((own, 2), (defaults, 3), (FILE, 4))
            if name in level and level[name] != "soon"
        ]
        value, source = candidates[0] if candidates else (str(DEFAULTS[name]), 5)
        assert getattr(settings.config, BROKER_SETTINGS[name].attribute) == int(value)
        assert settings.origins([name])[0].source == source
