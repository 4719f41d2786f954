"""The version of this distribution, equal to that in pyproject.toml.

This is a separate module, because `network` may not import the root package, which names the client library.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
