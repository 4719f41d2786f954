"""Compiles the data path of the broker with mypyc: `make compiled`. See docs/design/0019.

The output is a folder with a complete copy of the package `odradek`, in which the modules listed in `pyproject.toml`
([tool.odradek.compiled-core]) have an extension module next to their source. Python prefers the extension modules when
this folder comes first in PYTHONPATH. The source tree never contains extension modules, so an edited source is never
hidden by an outdated one. The build hook of the wheel (`build_hook.py`) runs this program and takes the extension
modules out of the folder.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import shutil
import sys
import sysconfig
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
BROKER: Final = ROOT / "broker"
PACKAGE: Final = "odradek"
DEFAULT_FOLDER: Final = ROOT / ".compiled"

DIGEST_FILE: Final = "sources.sha256"
"""File in the output with the digest of the sources that it was built from."""

GROUP: Final = "odradek_core"
"""Name of the shared library that contains the code of all modules: `odradek_core__mypyc`."""

MYPY_OPTIONS: Final = (
    # `make lint` checks the types, with all dependencies installed. Here, only the types of our own package count, so
    # that the result does not depend on what is installed. Errors in modules that are not compiled do not matter.
    "--config-file=",
    "--no-site-packages",
    "--ignore-missing-imports",
    "--follow-imports=silent",
    "--cache-dir=" + os.devnull,
)


def compiled_modules(pyproject: str) -> list[str]:
    """Return the dotted names of the modules to compile, from the text of pyproject.toml."""
    return [str(name) for name in tomllib.loads(pyproject)["tool"]["odradek"]["compiled-core"]["modules"]]


def missing_tool() -> str | None:
    """Return a message if this machine cannot compile C extensions, else None."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        return f"the C compiler {compiler} is not installed (Debian: apt-get install gcc libc6-dev)"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.is_file():
        return f"the header {header} is not installed (Debian: apt-get install python3-dev)"
    return None


def digest(root: Path = ROOT) -> str:
    """Return the digest of everything that determines the output: sources, list of modules, Python, this program."""
    package = root / "broker" / PACKAGE
    names = compiled_modules((root / "pyproject.toml").read_text(encoding="utf-8"))
    result = hashlib.sha256(f"{sysconfig.get_config_var('EXT_SUFFIX')} {names}".encode())
    for path in [Path(__file__), *sorted(package.rglob("*.py"))]:
        content = path.read_bytes()
        result.update(f"\n{path.relative_to(root) if path.is_relative_to(package) else ''} {len(content)} ".encode())
        result.update(content)
    return result.hexdigest()


def is_current(folder: Path, root: Path = ROOT) -> bool:
    """Whether the folder was built from the present sources."""
    note = folder / DIGEST_FILE
    return note.is_file() and note.read_text(encoding="ascii") == digest(root)


def build(folder: Path, root: Path = ROOT) -> None:
    """Replace the folder with a compiled copy of the package, which takes a few minutes.

    An interrupted build leaves the old folder unchanged. Raises `SystemExit` if the code cannot be compiled.
    """
    modules = compiled_modules((root / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = digest(root)
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    unneeded = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd")
    shutil.copytree(root / "broker" / PACKAGE, part / PACKAGE, ignore=unneeded)
    _compile(part, [name.replace(".", "/") + ".py" for name in modules])
    (part / DIGEST_FILE).write_text(wanted, encoding="ascii")
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


def _compile(folder: Path, paths: Sequence[str]) -> None:
    """Compile modules in place. The paths are relative to the folder."""
    from mypyc.build import mypycify
    from setuptools import setup

    os.chdir(folder)
    scratch = Path("scratch")
    extensions = mypycify([*MYPY_OPTIONS, *paths], group_name=GROUP, debug_level="0", target_dir=str(scratch))
    setup(
        name=PACKAGE,
        packages=[],
        ext_modules=extensions,
        script_args=["--quiet", "build_ext", "--inplace", "--build-temp", str(scratch), "--build-lib", str(scratch)],
    )
    shutil.rmtree(scratch)
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    missing = [path for path in paths if not Path(path).with_suffix(suffix).is_file()]
    if missing:
        raise SystemExit(f"mypyc compiled no extension module for {', '.join(missing)}.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Return the exit code."""
    parser = argparse.ArgumentParser(description="Compiles the data path of the broker with mypyc.")
    parser.add_argument("--into", type=Path, default=DEFAULT_FOLDER, metavar="FOLDER", help="default: %(default)s")
    parser.add_argument("--check", action="store_true", help="only check that FOLDER is up to date")
    parser.add_argument("--can-compile", action="store_true", help="only check that there is a C compiler")
    parser.add_argument("--if-possible", action="store_true", help="without a C compiler, do nothing and succeed")
    given = parser.parse_args(arguments)
    folder: Path = given.into.resolve()
    missing = missing_tool()
    if given.can_compile:
        return 0 if missing is None else 1
    if is_current(folder):
        return 0
    if given.check:
        sys.stderr.write(f"{folder} does not exist or is older than the sources: run `make compiled`.\n")
        return 1
    if missing is not None:
        sys.stderr.write(f"The core of odradek is not compiled: {missing}. It runs interpreted, at a lower speed.\n")
        return 0 if given.if_possible else 1
    sys.stderr.write(f"Compiling the core of odradek into {folder} (a few minutes, once)\n")
    build(folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
