"""Checks the structure of the packages: no import cycles, small folders, unique names, valid references."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "odradek": ROOT / "broker",
    "odradek_operator": ROOT / "operator",
    "pyspark_odradek": ROOT / "spark",
    "odradek_demo": ROOT / "spark",
}
FOLDER_MODULES = 20
ZNODES = frozenset({"topics/departures"})
"""Paths below `/config` in ZooKeeper. They look like references to modules, but are not."""


def modules() -> dict[str, Path]:
    found = {}
    for package, folder in PACKAGES.items():
        for path in (folder / package).rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


PUBLIC = "odradek"
"""This package imports its public names on first use. Imports in its module are only for type checking."""


def imports(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules of the project that a module imports, including imports only for type checking."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in known or node.module in known:
                    yield inner if inner in known else node.module


def test_no_import_cycle() -> None:
    known = modules()
    assert len(known) > 400
    graph = {name: set(imports(path, known)) - {name} for name, path in known.items() if name != PUBLIC}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"modules import each other: {' -> '.join(error.args[1])}")


def test_folders_are_small() -> None:
    counts: defaultdict[Path, int] = defaultdict(int)
    for top in ("broker", "operator", "spark", "tests", "images"):
        for path in (ROOT / top).rglob("*.py"):
            if path.name != "__init__.py":
                counts[path.parent.relative_to(ROOT)] += 1
    large = {str(folder): count for folder, count in counts.items() if count > FOLDER_MODULES}
    assert not large, f"split these folders by subject: {large}"


def test_every_package_has_a_docstring() -> None:
    for name, path in modules().items():
        if path.name == "__init__.py":
            assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), f"{name} has no docstring"


def test_references_to_modules_exist() -> None:
    """If a docstring refers to a module as `folder/module`, the module exists."""
    known = {
        str(path.relative_to(folder / package).with_suffix(""))
        for package, folder in PACKAGES.items()
        for path in (folder / package).rglob("*.py")
    }
    folders = {name.partition("/")[0] for name in known if "/" in name}
    for path in modules().values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for reference in re.findall(r"`([a-z_0-9]+(?:/[a-z_0-9]+)+)(?:\.py)?`", ast.get_docstring(node) or ""):
                if reference.partition("/")[0] in folders and reference not in ZNODES:
                    exists = reference in known or f"{reference}/__init__" in known
                    assert exists, f"{path.relative_to(ROOT)} refers to {reference}, which does not exist"


GENERATED = "odradek.protocol.messages."
"""An exception to unique names: generated classes have the names of Kafka's messages, and their modules the names of
their subjects (docs/design/0012)."""


@pytest.mark.parametrize("package", PACKAGES)
def test_names_in_a_package_are_unique(package: str) -> None:
    """Two modules or two public classes with the same name would lead readers to the wrong place."""
    named: defaultdict[str, list[str]] = defaultdict(list)
    classes: defaultdict[str, list[str]] = defaultdict(list)
    for name, path in modules().items():
        if not name.startswith(f"{package}.") or name.startswith(GENERATED):
            continue
        if path.name != "__init__.py":
            named[path.stem].append(name)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(name)
    assert {stem: places for stem, places in named.items() if len(places) > 1} == {}
    assert {name: places for name, places in classes.items() if len(places) > 1} == {}
