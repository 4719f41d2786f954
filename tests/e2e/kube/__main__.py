"""Runs the command of this package: `.venv/bin/python tests/e2e/kube up 3`."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from kube.command import main

    main()
