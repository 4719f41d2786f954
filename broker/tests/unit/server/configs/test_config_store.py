"""Overrides of topics: conditional writes, concurrent changes, invalid values, notifications."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from odradek.base.config import TopicConfig
from odradek.base.errors import InvalidConfigError, RequestTimedOutError
from odradek.zk import layout
from odradek.zk.layout import ConfigChangeNotification
from odradek.zk.port import BadVersion
from odradek_testkit.server import MemoryServer

PATH = layout.config_path("topics", "t")


def test_a_change_is_written_announced_and_effective(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        notified: list[tuple[str, int]] = []
        server.configs.on_change = lambda topic, config: notified.append((topic, config.retention_ms))
        for value in ("5", "6"):
            await server.configs.change("t", lambda now, value=value: {**now, "retention.ms": value})  # type: ignore[misc]
        assert notified == [("t", 5), ("t", 6)]
        assert layout.decode_config(PATH, (await server.zk.get(PATH))[0]) == {"retention.ms": "6"}
        notices = await server.zk.children(layout.CONFIG_CHANGES)
        assert len(notices) == 2
        data, _ = await server.zk.get(f"{layout.CONFIG_CHANGES}/{notices[0]}")
        assert ConfigChangeNotification.decode(notices[0], data).entity_path == "topics/t"
        await server.configs.change("t", lambda _: {})
        assert server.configs.overrides("t") == {}
        assert server.configs.topic_config("t") == TopicConfig.of(server.config, {})

    play(scenario)


def test_the_overrides_of_a_recreated_topic_are_read_again(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.configs.load_unread(["t"])
        await server.zk.create(PATH, layout.encode_config({"retention.ms": "5"}))
        await server.configs.load_unread(["t"])
        assert server.configs.overrides("t") == {}
        server.configs.forget("t")
        await server.configs.load_unread(["t"])
        assert server.configs.overrides("t") == {"retention.ms": "5"}

    play(scenario)


def test_concurrent_changes_are_not_lost(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.configs.change("t", lambda _: {"retention.ms": "5"})
        seen: list[Mapping[str, str]] = []

        def change(now: Mapping[str, str]) -> Mapping[str, str]:
            if not seen:
                server.zk.failures = [BadVersion("another was first", PATH)]
            seen.append(now)
            return {**now, "segment.bytes": "4096"}

        await server.configs.change("t", change)
        assert len(seen) == 2
        assert server.configs.overrides("t") == {"retention.ms": "5", "segment.bytes": "4096"}

    play(scenario)


def test_a_change_is_rejected_after_repeated_conflicts(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        def change(now: Mapping[str, str]) -> Mapping[str, str]:
            server.zk.failures = [BadVersion("another was first", PATH)]
            return {"retention.ms": "5"}

        with pytest.raises(RequestTimedOutError):
            await server.configs.change("t", change)
        server.zk.failures.clear()
        assert await server.zk.exists(PATH) is None

    play(scenario)


def test_a_refused_change_writes_nothing(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        def refuse(_: Mapping[str, str]) -> Mapping[str, str]:
            raise InvalidConfigError("no")

        with pytest.raises(InvalidConfigError):
            await server.configs.change("t", refuse)
        assert await server.zk.exists(PATH) is None

    play(scenario)


def test_valid_settings_of_other_tools_are_applied(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.zk.create(PATH, layout.encode_config({"retention.ms": "7", "message.format.version": "2.7"}))
        await server.zk.create(layout.config_path("topics", "broken"), b"{")
        await server.configs.load_all()
        assert server.configs.topic_config("t").retention_ms == 7
        assert server.configs.overrides("t") == {"retention.ms": "7", "message.format.version": "2.7"}
        assert server.configs.overrides("broken") == {}
        server.configs.forget("t")
        assert server.configs.topic_config("t").retention_ms == 604_800_000

    play(scenario)


def test_an_invalid_topic_name_is_not_read(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        path = layout.config_path("topics", "a")
        await server.zk.create(path, layout.encode_config({"retention.ms": "5"}), make_parents=True)
        await server.configs.load(["", ".", "..", "a/b", "a"])
        assert server.configs.overrides("a") == {"retention.ms": "5"}
        assert all(not server.configs.overrides(name) for name in ("", ".", "..", "a/b"))

    play(scenario)
