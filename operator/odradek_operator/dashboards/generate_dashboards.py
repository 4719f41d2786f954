"""Writes the dashboards and alert rules of the chart: `python -m odradek_operator.dashboards.generate_dashboards`.

`make crds` calls it. A test checks that the files are current.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from odradek_operator.dashboards.files import files

CHART: Final = Path("charts/odradek")
"""Path of the chart, relative to the root of the project."""


def main(chart: Path = CHART) -> None:
    """Write all generated files below `chart`, and print their paths. Missing folders are created."""
    for path, text in files().items():
        target = chart / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{target}\n")


if __name__ == "__main__":
    main()
