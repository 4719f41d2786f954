"""The names that `odradek` exports: all of them work, have documentation, and include what the clients mention."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import odradek
from odradek.client import models

NAMES = [name for name in odradek.__all__ if name != "__version__"]
CLIENTS = [odradek.Producer, odradek.Consumer, odradek.Admin, odradek.BlockingClient]
INTERNAL = {"Clock", "Cluster"}
"""Types of parameters for tests."""


def test_every_name_can_be_imported() -> None:
    assert [getattr(odradek, name).__name__ for name in NAMES] == NAMES
    assert set(NAMES) <= set(dir(odradek))
    with pytest.raises(AttributeError, match="nothing"):
        odradek.nothing  # noqa: B018


def test_every_name_has_documentation() -> None:
    for name in NAMES:
        documentation = vars(getattr(odradek, name)).get("__doc__") or inspect.getdoc(getattr(odradek, name))
        assert documentation, name
        assert not documentation.startswith(f"{name}("), f"{name} has only the text of dataclasses"


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(odradek.__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    checked = {
        alias.name: str(node.module) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert checked == {name: f"odradek.{module}" for name, module in odradek._MODULES.items()}
    assert sorted(checked) == NAMES


def test_importing_the_package_imports_no_client() -> None:
    code = "import odradek, sys; print([name for name in sys.modules if name.startswith('odradek.')])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert ast.literal_eval(found) == ["odradek.base"]


def test_all_models_are_exported() -> None:
    of_module = {name for name, value in vars(models).items() if getattr(value, "__module__", "") == models.__name__}
    assert of_module - set(NAMES) == set()


def mentioned(client: type) -> Iterator[str]:
    """Yield the errors in the docstrings of a client, and the classes of this project in its signatures."""
    yield from re.findall(r"`(\w+Error)`", inspect.getdoc(client) or "")
    for name, member in inspect.getmembers(client):
        function = member.fget if isinstance(member, property) else member
        if (name.startswith("_") and name != "__init__") or not inspect.isfunction(function):
            continue
        yield from re.findall(r"`(\w+Error)`", inspect.getdoc(function) or "")
        module = importlib.import_module(function.__module__)
        for annotation in inspect.get_annotations(function).values():
            for word in re.findall(r"\b[A-Z]\w+", str(annotation)):
                value = vars(module).get(word)
                if inspect.isclass(value) and value.__module__.startswith("odradek."):
                    yield word


@pytest.mark.parametrize("client", CLIENTS)
def test_what_the_clients_mention_is_exported(client: type) -> None:
    found = set(mentioned(client))
    assert len(found) > 8
    assert found - set(NAMES) - INTERNAL - {"TypeError", "RuntimeError"} == set()


def test_classes_in_the_fields_of_models_are_exported() -> None:
    for name in NAMES:
        value = getattr(odradek, name)
        if not inspect.isclass(value) or not (dataclasses.is_dataclass(value) or issubclass(value, tuple)):
            continue
        module = vars(sys.modules[value.__module__])
        for annotation in inspect.get_annotations(value).values():
            for word in re.findall(r"\b[A-Z]\w+", str(annotation)):
                if inspect.isclass(module.get(word)) and module[word].__module__.startswith("odradek."):
                    assert word in NAMES, f"{name} has a {word}"


def test_the_guide_has_every_name() -> None:
    guide = (Path(__file__).parents[4] / "docs/python.md").read_text(encoding="utf-8")
    listed = guide[guide.index("## All public names") :]
    assert sorted(re.findall(r"`(\w+)`", listed)) == NAMES
