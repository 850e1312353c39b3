"""`python -m bench [NAME …]`."""

import importlib
import json
import os
import platform
import sys
import time
from pathlib import Path

import asyncpg
import sqlalchemy

from bench.comparison import Finding

NAMES = (
    "claims", "enqueue", "relay", "growth", "churn", "kills", "rivals", "arq", "sandbox", "listeners", "status",
    "pulls", "pull_growth", "pull_storm", "neighbours", "list_growth", "etl_overhead", "etl_workers",
    "etl_memory", "etl_quality", "etl_again", "etl_grounding", "etl_checks", "llm_rate",
)  # fmt: skip
MODULES = {"rivals": "claim_races", "listeners": "events", "etl_again": "etl_cache", "etl_checks": "etl_validation"}
RESULTS = Path(__file__).parent / "results"


def main(names: list[str]) -> int:
    """Run the named benchmarks; returns the exit status."""
    if unknown := set(names) - set(NAMES):
        print(f"unknown benchmark: {', '.join(sorted(unknown))}; available: {', '.join(NAMES)}")
        return 2
    missed = 0
    for name in names or NAMES:
        began = time.monotonic()
        findings: list[Finding] = importlib.import_module(f"bench.{MODULES.get(name, name)}").run()
        print(f"{name} ({time.monotonic() - began:.0f} s)")
        for finding in findings:
            print(f"  {finding.line()}")
        _save(name, findings)
        missed += sum(not finding.met for finding in findings)
    print(f"{missed} target(s) missed" if missed else "every target met")
    return 1 if missed else 0


def _save(name: str, findings: list[Finding]) -> None:
    about = {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "sqlalchemy": sqlalchemy.__version__,
        "asyncpg": asyncpg.__version__,
    }
    body = {"benchmark": name, "on": about, "findings": [finding.as_dict() for finding in findings]}
    (RESULTS / f"{name}.json").write_text(json.dumps(body, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
