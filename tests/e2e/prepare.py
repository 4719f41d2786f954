"""Builds what the end-to-end tests need before they start: the programs of the cluster, and the images.

`.ci/run` runs it beside other steps, because it takes 10 to 15 minutes on a new machine. Tests that start meanwhile
wait for it. Without it, they build the same.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kube import binaries, packages
from kube.host import HarnessError
from support import images
from support.product import IMAGES


@click.command(help=__doc__)
def main() -> None:
    """Build what is missing."""

    def say(text: str) -> None:
        click.echo(text, err=True)

    try:
        packages.ensure(say)
        binaries.ensure(say)
        images.ensure(IMAGES, say)
    except HarnessError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
