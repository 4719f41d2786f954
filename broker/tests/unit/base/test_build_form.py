"""The form of the core is recognized without importing it."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec

import pytest

from odradek.base import build_form as module
from odradek.base.build_form import PROBE, build_form


def test_the_tests_run_interpreted() -> None:
    assert build_form() == "interpreted"


def test_an_extension_module_is_the_compiled_form(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ModuleSpec(PROBE, ExtensionFileLoader(PROBE, "/wire.so"))
    monkeypatch.setattr(module, "find_spec", lambda name: spec if name == PROBE else None)
    assert build_form() == "compiled"


def test_it_imports_no_module_of_the_core() -> None:
    program = f"import sys, odradek.base.build_form as b; b.build_form(); print({PROBE!r} in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout == "False\n"
