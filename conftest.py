"""Lets pytest import the tests under `operator/` without losing the standard library's module of that name.

pytest's import mode `importlib` names a test by its path, `operator.tests.…`, and imports every parent of that name
that is no package: it would put the folder in the place of the standard library's `operator`. With a path of its own
the module passes for a package, stays what it is, and the tests are found below it.
"""

from __future__ import annotations

import operator
from pathlib import Path

operator.__path__ = [str(Path(__file__).parent / "operator")]
