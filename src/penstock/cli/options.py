"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

DataDir = Annotated[Path | None, typer.Option(help="The data folder; PENSTOCK_DATA_DIR by default.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Limit = Annotated[int, typer.Option(help="The most to show.", min=1, max=10_000)]
Since = Annotated[
    str | None, typer.Option(help="Only what ended at this time or later: an age such as 2h or 3d, or a time.")
]
Until = Annotated[str | None, typer.Option(help="Only what ended before this time or age.")]
All = Annotated[bool, typer.Option("--all", help="Everything, without a filter.")]
