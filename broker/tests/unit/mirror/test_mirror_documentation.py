"""docs/mirror.md names every field of the configuration with its default, and every metric."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from pathlib import Path
from uuid import UUID

from odradek.base.system_ports import SystemClock
from odradek.mirror.copier_group import CopierGroup
from odradek.mirror.mirror_config import MirrorConfig, SourceConfig
from odradek.mirror.mirror_metrics import MirrorCollector
from odradek.mirror.mirror_plan import CopiedPartition
from odradek_testkit.clients.two_clusters import NotedPairs

TEXT = (Path(__file__).parents[4] / "docs/mirror.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `([^`]+)` \|([^|]*)\|", TEXT, re.MULTILINE))
NOT_FIELDS = {"name", "address", "target", "sources"}


def camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(part.title() for part in tail)


def test_the_table_has_every_field_and_its_default() -> None:
    wanted = {f"sources[].{camel(each.name)}": each.default for each in fields(SourceConfig)}
    wanted |= {camel(each.name): each.default for each in fields(MirrorConfig)}
    for name, default in wanted.items():
        if name.rpartition(".")[2] in NOT_FIELDS:
            continue
        assert name in ROWS, f"docs/mirror.md lacks {name}"
        if default is not MISSING and isinstance(default, (str, bool, int)):
            assert ROWS[name].strip(" `") == str(default).lower(), name
    for place in ("target", "sources[]"):
        assert {f"{place}.{name}" for name in ("bootstrapServers", "configFile", "properties")} <= set(ROWS)


def test_the_configuration_of_the_guide_is_valid() -> None:
    block = TEXT.split("`mirror.yaml`:\n\n")[1].split("\n\n")[0]
    config = MirrorConfig.parse("\n".join(line[7:] for line in block.splitlines()), "mirror.yaml")
    assert config.sources[0].copies("orders") and config.sources[0].groups.matches("billing")


async def test_every_metric_is_documented() -> None:
    text = '{"name": "m", "target": {"bootstrapServers": "t:1"}, "sources": [{"name": "e", "bootstrapServers": "e:1",'
    config = MirrorConfig.parse(text + '"topics": {"include": [".*"]}}]}', "m")
    clock = SystemClock()
    copiers = CopierGroup(config, instance="a", is_static=True, clock=clock, listeners={}, on_leading=NotedPairs().lead)
    copiers.owned.add(CopiedPartition("e", "t", 3, UUID(int=1), "e.t"))
    names = set()
    for family in MirrorCollector(copiers, clock).collect():
        names.add(family.name + ("_total" if family.type == "counter" else ""))
    assert names == {name for name in ROWS if name.startswith("odradek_mirror_")}
