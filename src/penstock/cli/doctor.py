"""`penstock doctor`: looks at the set-up and says what to do."""

import asyncio
from typing import Annotated

import typer
from msgspec import json
from rich.console import Console
from rich.markup import escape

from penstock import settings as all_settings
from penstock.cli.examine import Finding, Verdict, examine

MARKS = {Verdict.WELL: "[green]✓[/]", Verdict.NOTE: "[yellow]![/]", Verdict.WRONG: "[red]✗[/]"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Check settings, connections, clocks and rights. Ends with 1 when something is wrong."""
    findings = asyncio.run(examine(all_settings.load()))
    if as_json:
        typer.echo(json.format(json.encode(findings), indent=2))
    else:
        _print(findings)
    if any(finding.verdict is Verdict.WRONG for finding in findings):
        raise typer.Exit(1)


def _print(findings: list[Finding]) -> None:
    console = Console(highlight=False)
    for finding in findings:
        console.print(f"{MARKS[finding.verdict]} {finding.name:<15} {escape(finding.detail)}", soft_wrap=True)
        if finding.remedy:
            console.print(f"  {'':<15} → {escape(finding.remedy)}", soft_wrap=True)
