"""Adds the package of the fault run to the path. It is not part of the product and is run as a script."""

from __future__ import annotations

import sys
from pathlib import Path

FAULTS = Path(__file__).resolve().parents[2] / "faults"

if str(FAULTS) not in sys.path:
    sys.path.append(str(FAULTS))
