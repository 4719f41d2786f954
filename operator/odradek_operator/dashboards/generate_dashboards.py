"""Writes dashboards and alert rules as files of the chart: `python -m odradek_operator.dashboards.generate_dashboards`.

`make crds` calls it. A test checks that the files are current.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from odradek_operator.dashboards.files import files

CHART: Final = Path("charts/odradek")
"""Path from the root of the project."""


def main(chart: Path = CHART) -> None:
    """Write all files below `chart`, creating missing folders."""
    for path, text in files().items():
        target = chart / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{target}\n")


if __name__ == "__main__":
    main()
