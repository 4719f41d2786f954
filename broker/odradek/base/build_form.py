"""Tells whether the data path of this installation is compiled to C or interpreted (docs/design/0019).

Both forms behave the same. The compiled one needs about 40 % less CPU time per request.
"""

from __future__ import annotations

from importlib.machinery import ExtensionFileLoader
from importlib.util import find_spec
from typing import Final, Literal

PROBE: Final = "odradek.protocol.wire"
"""One of the compiled modules. All modules of the list in pyproject.toml are compiled together."""


def build_form() -> Literal["compiled", "interpreted"]:
    """Return the form of the data path, without importing it."""
    spec = find_spec(PROBE)
    return "compiled" if spec is not None and isinstance(spec.loader, ExtensionFileLoader) else "interpreted"
