"""Hatchling's build hook: compiles the data path of the broker into the wheel. See docs/design/0019.

The environment variable ODRADEK_COMPILE decides: `0` builds a wheel of pure Python, `1` fails without a C compiler.
Otherwise the wheel is compiled if there is a compiler. An editable installation is never compiled, because edited
sources must take effect.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE = "ODRADEK_COMPILE"
PURE, REQUIRED, AUTOMATIC = "0", "1", ""


class CompiledCore(BuildHookInterface):
    """Adds the extension modules to the wheel, next to the sources of their modules."""

    PLUGIN_NAME = "compiled-core"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the modules, and tell hatchling to include them. Raises `ValueError` and `CalledProcessError`."""
        self._folder = tempfile.TemporaryDirectory(prefix="odradek-core-")
        wanted = os.environ.get(VARIABLE, AUTOMATIC)
        if wanted not in (PURE, REQUIRED, AUTOMATIC):
            raise ValueError(
                f"{VARIABLE}={wanted} is not allowed: use 0 (never compile) or 1 (fail without a compiler)."
            )
        if version == "editable":
            return
        if wanted == PURE:
            self.app.display_warning(f"The core of odradek is not compiled, because {VARIABLE}=0.")
            return
        target = Path(self._folder.name) / "core"
        program = [sys.executable, str(Path(self.root) / "broker/tools/compile_core.py"), "--into", str(target)]
        subprocess.run(program + (["--if-possible"] if wanted == AUTOMATIC else []), check=True)
        modules = {str(path): path.relative_to(target).as_posix() for path in sorted(target.rglob("*.so"))}
        if modules:
            build_data["force_include"].update(modules)
            build_data["pure_python"] = False
            build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary folder."""
        self._folder.cleanup()
