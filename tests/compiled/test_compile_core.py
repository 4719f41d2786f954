"""Tests how the core is compiled: the list of modules, wheels with and without a compiler, and the compiled result."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from odradek.base import VERSION
from odradek.base.build_form import PROBE

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
SMALL = [PROBE, "odradek.records.v2.varint"]
"""A part of the core that is compiled within seconds."""


def compile_core() -> ModuleType:
    spec = spec_from_file_location("odradek_compile_core", ROOT / "broker/tools/compile_core.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tool = compile_core()
MODULES: list[str] = tool.compiled_modules(PYPROJECT)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of everything that the wheel is built from, with the small part as the core."""
    root = tmp_path / "project"
    for name in ("broker/odradek", "broker/tools", "operator/odradek_operator", "spark/pyspark_odradek"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "spark/odradek_demo").mkdir()
    (root / "README.md").write_text("", encoding="utf-8")
    listed = "\n".join(f'  "{name}",' for name in SMALL)
    text, count = re.subn(
        r"^modules = \[\n.*?^\]", f"modules = [\n{listed}\n]", PYPROJECT, flags=re.DOTALL | re.MULTILINE
    )
    assert count == 1
    (root / "pyproject.toml").write_text(text, encoding="utf-8")
    return root


def build_wheel(project: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Build the wheel with the tools of this virtual environment."""
    pip = [sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-index", "--no-build-isolation"]
    command = [*pip, "--no-deps", "--verbose", "--wheel-dir", str(project.parent / "wheels"), str(project)]
    kept = {name: value for name, value in os.environ.items() if name != "ODRADEK_COMPILE"}
    return subprocess.run(command, env={**kept, **environment}, capture_output=True, text=True, check=False)


def wheel_of(project: Path) -> Path:
    (wheel,) = (project.parent / "wheels").glob("*.whl")
    return wheel


def extensions(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return sorted(name.partition(".")[0] for name in archive.namelist() if name.endswith(".so"))


def test_every_listed_module_exists_once() -> None:
    assert sorted(set(MODULES)) == MODULES
    assert [name for name in MODULES if not (ROOT / "broker" / f"{name.replace('.', '/')}.py").is_file()] == []


def test_the_form_is_recognized_by_a_listed_module() -> None:
    assert PROBE in MODULES


def test_the_compiler_has_the_version_in_the_constraints() -> None:
    pins = set((ROOT / "constraints.txt").read_text(encoding="utf-8").split())
    requirements = tomllib.loads(PYPROJECT)["build-system"]["requires"]
    assert pins >= {line for line in requirements if line.startswith("mypy")}
    assert {"hatchling", "setuptools"} <= {pin.partition("==")[0] for pin in pins}


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"ODRADEK_COMPILE": "0"}, "The core of odradek is not compiled, because ODRADEK_COMPILE=0."),
        ({"CC": "/no/such/compiler"}, "The core of odradek is not compiled: the C compiler /no/such/compiler is not"),
    ],
    ids=["on request", "no compiler"],
)
def test_a_wheel_without_the_compiled_core_is_pure(project: Path, environment: dict[str, str], message: str) -> None:
    built = build_wheel(project, environment)
    assert built.returncode == 0, built.stdout + built.stderr
    assert wheel_of(project).name == f"odradek-{VERSION}-py3-none-any.whl"
    assert extensions(wheel_of(project)) == []
    assert len([line for line in (built.stdout + built.stderr).splitlines() if message in line]) == 1


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"ODRADEK_COMPILE": "1", "CC": "/no/such/compiler"}, "the C compiler /no/such/compiler is not installed"),
        ({"ODRADEK_COMPILE": "yes"}, "ODRADEK_COMPILE=yes is not allowed"),
    ],
    ids=["no compiler", "unknown value"],
)
def test_a_wheel_that_must_be_compiled_is_never_pure(project: Path, environment: dict[str, str], message: str) -> None:
    built = build_wheel(project, environment)
    assert built.returncode != 0
    assert message in built.stdout + built.stderr
    assert not (project.parent / "wheels").exists() or not list((project.parent / "wheels").iterdir())


@pytest.mark.compiler
@pytest.mark.timeout(600)
def test_a_wheel_contains_the_compiled_modules_and_they_are_used(project: Path, tmp_path: Path) -> None:
    built = build_wheel(project, {"ODRADEK_COMPILE": "1"})
    assert built.returncode == 0, built.stdout + built.stderr
    wheel = wheel_of(project)
    assert "-none-any" not in wheel.name
    expected = sorted([*(name.replace(".", "/") for name in SMALL), f"{tool.GROUP}__mypyc"])
    assert extensions(wheel) == expected
    assert not list(project.rglob("*.so")), "the source tree stays without extension modules"
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    program = (
        "import odradek.records.v2.varint as v, odradek.cli.main as m\n"
        "print(v.__file__, v.encode_varint(-300).hex())\n"
        "m.cli.main(['--version'], prog_name='odradek')"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    used, version = answer.stdout.splitlines()
    assert used.startswith(str(installed)) and used.endswith(".so d704")
    assert version == f"odradek, version {VERSION} (compiled core)"


def test_a_changed_source_makes_a_compiled_folder_outdated(project: Path, tmp_path: Path) -> None:
    folder = tmp_path / "core"
    folder.mkdir()
    assert not tool.is_current(folder, project)
    (folder / tool.DIGEST_FILE).write_text(tool.digest(project), encoding="ascii")
    assert tool.is_current(folder, project)
    with (project / "broker/odradek/log/values.py").open("a", encoding="utf-8") as source:
        source.write("# changed\n")
    assert not tool.is_current(folder, project)
