"""Settings of the environment reach the tasks module."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from penstock.kernel.errors import TooMany
from penstock.settings import load
from penstock.tasks.deps import Config
from penstock.wiring import open_runtime

SETTINGS: list[tuple[str, str, str, Any]] = [
    ("PULL_TIMEOUT", "90", "pull_timeout", 90.0),
    ("PULL_BATCH_SIZE", "7", "batch_size", 7),
    ("PULL_MAX_ATTEMPTS", "3", "max_attempts", 3),
    ("PULL_WAIT_SECONDS", "5", "wait_seconds", 5.0),
    ("PULL_STATS_SECONDS", "1", "stats_seconds", 1.0),
    ("PULL_HISTORY_DAYS", "30", "history_days", 30.0),
    ("TASK_EXPIRY_TIME", "60", "expiry_time", 60.0),
    ("TASK_EXPIRED_ACTION", "archive", "expired_action", "archive"),
    ("RESET_CLEAR_PULL_STATUS", "false", "reset_clears_pulls", False),
    ("TASK_OPERATION_LIMIT", "7", "operation_limit", 7),
    ("RERUN_CLEAR_PULL_STATUS", "false", "rerun_clears_pulls", False),
]


async def test_without_settings_the_module_uses_its_defaults(tmp_path: Path):
    async with open_runtime(load({"PENSTOCK_DATA_DIR": str(tmp_path)})) as runtime:
        config = runtime.modules.tasks.config
    assert config == Config()
    assert (config.pull_timeout, config.batch_size, config.expiry_time) == (3600, 100, 0)
    assert (config.reset_clears_pulls, config.rerun_clears_pulls) == (True, True)


async def test_every_option_of_the_module_has_its_variable(tmp_path: Path):
    variables = {env: text for env, text, _, _ in SETTINGS}
    async with open_runtime(load({"PENSTOCK_DATA_DIR": str(tmp_path), **variables})) as runtime:
        config = runtime.modules.tasks.config
    assert asdict(config) == {name: value for _, _, name, value in SETTINGS}


@pytest.mark.parametrize("limit", [{"PULL_RATE_LIMIT": "1/minute"}, {"PULL_MIN_INTERVAL": "60"}])
async def test_how_often_a_key_pulls_is_bounded_by_settings(tmp_path: Path, limit: dict[str, str]):
    async with open_runtime(load({"PENSTOCK_DATA_DIR": str(tmp_path), **limit})) as runtime:
        limiter = runtime.modules.tasks.limiter
        await limiter.admit("key:one")
        with pytest.raises(TooMany):
            await limiter.admit("key:one")


async def test_how_many_tasks_a_key_pulls_in_a_day_is_bounded_by_a_setting(tmp_path: Path):
    async with open_runtime(load({"PENSTOCK_DATA_DIR": str(tmp_path), "PULL_QUOTA": "2"})) as runtime:
        limiter = runtime.modules.tasks.limiter
        assert await limiter.reserve("key:one", 5) == 2
        with pytest.raises(TooMany):
            await limiter.reserve("key:one", 1)
