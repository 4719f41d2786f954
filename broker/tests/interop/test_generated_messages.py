"""The generated message classes correspond to the definitions of Apache Kafka."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]


def generator(root: Path) -> ModuleType:
    spec = spec_from_file_location("odradek_message_generator", root / "broker/tools/messages.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_messages_are_generated_from_the_definitions(request: pytest.FixtureRequest) -> None:
    root = Path(request.config.rootpath)
    tool = generator(root)
    generated = tool.generate(*tool.fetched_jars())
    committed = {path.name: path.read_text(encoding="utf-8") for path in tool.PACKAGE.glob("*.py")}

    assert committed == generated, "run `make messages`"
