"""Samples in the guides are valid: a broker accepts the properties without a warning, and the JSON can be parsed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from odradek.base.config import BrokerConfig
from odradek.base.setting_definitions import parse_properties
from odradek_testkit.interop.guides import fenced_blocks

ROOT = Path(__file__).parents[1]
GUIDES = sorted((ROOT / "docs").glob("*.md"))


def test_properties_are_taken_without_a_warning() -> None:
    samples = [block for guide in GUIDES for block in fenced_blocks(guide.read_text(encoding="utf-8"), "properties")]
    assert samples
    for sample in samples:
        assert BrokerConfig.parse(parse_properties(sample))[1] == []


def test_json_can_be_read() -> None:
    samples = [block for guide in GUIDES for block in fenced_blocks(guide.read_text(encoding="utf-8"), "json")]
    assert samples
    for sample in samples:
        json.loads(sample)


@pytest.mark.parametrize("guide", [*GUIDES, ROOT / "README.md"], ids=lambda guide: guide.name)
def test_links_lead_somewhere(guide: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", guide.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (guide.parent / target).exists(), target
