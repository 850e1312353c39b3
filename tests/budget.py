"""CPU budget of `make test`: CPU seconds per folder, servers and child processes included.

Each xdist worker charges what it and its descendants used to the file that ran. The controller adds up by folder and,
with --cpu-budget, fails the run when a folder is over its budget. Machines differ and may be busy, so a calibration
loop, a fixed piece of work, is timed at both ends of the run, and the figures are scaled to the machine on which the
budgets were set.
"""

import json
import time
from collections import defaultdict
from typing import Any

import psutil
import pytest

# CPU seconds per folder on the reference machine: a fifth more than a run took, and 690 in all, the limit of make test.
BUDGET = {
    "access": 14,
    "adapters": 68,
    "checks": 15,
    "cli": 22,
    "conformance": 30,
    "documents": 26,
    "etl": 80,
    "fakes": 3,
    "gateway": 12,
    "journeys": 84,
    "kernel": 100,
    "notify": 12,
    "servers": 3,
    "start-up": 45,
    "tasks": 140,
    "web": 29,
    "wiring": 3,
}
CALIBRATION_SECONDS = 0.0164  # of `_calibrate` on the reference machine
PIECES = list(range(3000))


class CpuBudget:
    """Measures one process, and on the controller of a run all of them."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._folder = "start-up"
        self._charged = 0.0
        self._calibrations = [_calibrate()]
        self._seconds: dict[str, float] = defaultdict(float)
        self._over: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Charge what was used so far when the folder changes."""
        folder = _folder_of(item)
        if folder != self._folder:
            self._charge()
            self._folder = folder

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker reports to its controller, which judges."""
        self._charge()
        self._calibrations.append(_calibrate())
        if (report := getattr(self._config, "workeroutput", None)) is not None:
            report["cpu"] = json.dumps([self._seconds, self._calibrations])
        elif self._config.getoption("--cpu-budget"):
            scaled = {folder: used / self._slowness() for folder, used in self._seconds.items()}
            self._over = [name for name, used in scaled.items() if used > BUDGET.get(name, 0)]
            if self._over and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Take a worker's figures over. One that crashed has none."""
        if error is None:
            seconds, calibrations = json.loads(node.workeroutput["cpu"])
            for folder, used in seconds.items():
                self._seconds[folder] += used
            self._calibrations += calibrations

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The table of a whole run."""
        if not self._config.getoption("--cpu-budget"):
            return
        slowness = self._slowness()
        terminalreporter.section(f"CPU seconds by folder; this machine takes {slowness:.2f} of the reference's time")
        for folder, used in sorted(self._seconds.items()):
            over = "  OVER BUDGET" if folder in self._over else ""
            terminalreporter.line(f"{folder:12} {used:6.1f}   budget {BUDGET.get(folder, 0) * slowness:6.1f}{over}")
        terminalreporter.line(f"{'total':12} {sum(self._seconds.values()):6.1f}")

    def _charge(self) -> None:
        used = time.process_time() if self._is_controller() else _cpu_seconds()
        # Descendants that nobody waited for are no longer counted once they are gone.
        self._seconds[self._folder] += max(0.0, used - self._charged)
        self._charged = used

    def _is_controller(self) -> bool:
        """Whether tests run in workers, which report for themselves."""
        return self._config.getoption("dist", "no") != "no" and not hasattr(self._config, "workeroutput")

    def _slowness(self) -> float:
        """At least 1: a core that was quick while calibrating may have been slow in between."""
        return max(1.0, sorted(self._calibrations)[len(self._calibrations) // 2] / CALIBRATION_SECONDS)


def _folder_of(item: pytest.Item) -> str:
    parts = item.path.relative_to(item.config.rootpath / "tests").parts
    return parts[0] if len(parts) > 1 else "checks"


def _cpu_seconds() -> float:
    """Of this process and all of its descendants, those included that were waited for."""
    total = 0.0
    for process in (me := psutil.Process(), *me.children(recursive=True)):
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total


def _calibrate() -> float:
    """CPU seconds of a fixed piece of work."""
    return min(_timed() for _ in range(3))


def _timed() -> float:
    start = time.process_time()
    for _ in range(10):
        json.loads(json.dumps({str(piece): [piece, str(piece)] for piece in PIECES}))
    return time.process_time() - start
