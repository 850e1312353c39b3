"""What modules contribute together, and what two of them may not have in common."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.kernel.db import Db, Tx
from penstock.kernel.job_dispatch import JobsWaiting
from penstock.kernel.message import Message
from penstock.kernel.module import BackgroundTask, ModuleSpec
from penstock.kernel.processes import ProcessKind
from penstock.kernel.queue import Job
from penstock.kernel.retry import Backoff
from penstock.settings import Settings
from penstock.wiring import open_runtime
from penstock.wiring.backends import Backends
from penstock.wiring.modules import MODULES, ModuleEntry, Modules, build_modules, migration_folders
from tests.checks import tree
from tests.fakes.blocking_handler import wait_until

SLOW = Backoff(first_seconds=60, max_seconds=600)


@dataclass(frozen=True, kw_only=True)
class Told(Message):
    """A message that several modules handle."""


async def run(job: Job) -> None:
    """A job."""


async def hear(tx: Tx, message: Told) -> None:
    """A handler."""


async def hear_too(tx: Tx, message: Told) -> None:
    """Another handler."""


def builds(name: str) -> ModuleEntry:
    build: Callable[..., ModuleSpec] = lambda settings, db, backends: ModuleSpec(name=name)  # noqa: E731
    return ModuleEntry(build)


def build(modules: dict[str, ModuleEntry]) -> Modules:
    unused: Any = None
    return build_modules(Settings(), cast(Db, unused), cast(Backends, unused), modules)


def test_workers_take_the_jobs_of_modules_that_have_some():
    modules = Modules(
        (
            ModuleSpec(name="quiet"),
            ModuleSpec(name="shared", jobs={"a": run}),
            ModuleSpec(name="own", jobs={"b": run}, retries={"b": SLOW}, slots=2, arq_queue_name="mine"),
        )
    )
    assert modules.with_jobs == ("", "shared", "own")
    assert modules.jobs == {"a": run, "b": run}
    assert modules.retries == {"b": SLOW}
    assert modules.slots == {"own": 2}
    assert modules.arq_queue_names == {"own": "mine"}


def test_a_message_goes_to_the_handlers_of_every_module():
    one = ModuleSpec(name="one", messages={Told: [hear]})
    two = ModuleSpec(name="two", messages={Told: [hear_too]})
    assert Modules((one, two)).routes == {JobsWaiting: [], Told: [hear, hear_too]}


@pytest.mark.parametrize(
    ("common", "what"), [({"jobs": {"same": run}}, "jobs"), ({"state": {"same": object()}}, "state")]
)
def test_two_modules_with_the_same_job_kind_or_state_are_refused(common: dict[str, Any], what: str):
    with pytest.raises(ValueError, match=f"two modules have the same {what}: \\['same'\\]"):
        Modules((ModuleSpec(name="one", **common), ModuleSpec(name="two", **common)))


def test_a_module_under_another_name_is_refused():
    with pytest.raises(ValueError, match="'tow'"):
        build({"one": builds("one"), "two": builds("tow")})


def test_modules_are_built_in_the_order_of_their_lines():
    assert [spec.name for spec in build({"b": builds("b"), "a": builds("a")}).specs] == ["b", "a"]


def test_another_spec_replaces_the_module_of_its_name():
    before = Modules((ModuleSpec(name="one"), ModuleSpec(name="two")))
    other = ModuleSpec(name="two", jobs={"a": run})
    assert before.replacing(other).specs == (before.specs[0], other)


@pytest.mark.parametrize("kind", ProcessKind)
async def test_background_tasks_run_in_processes_of_their_kinds(kind: ProcessKind, tmp_path: Path):
    started: list[str] = []

    async def start(name: str) -> None:
        started.append(name)

    background = [
        BackgroundTask(run=partial(start, "any")),
        *(BackgroundTask(run=partial(start, one), kinds=frozenset({one})) for one in ProcessKind),
    ]
    entry = ModuleEntry(lambda _settings, _db, _backends: ModuleSpec(name="only", background=background))
    async with open_runtime(Settings(data_dir=tmp_path), modules={"only": entry}) as runtime:
        running = asyncio.create_task(runtime.run_background(kind=kind))
        await wait_until(lambda: len(started) >= 2)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert started == ["any", kind]


def test_web_the_runtime_and_the_processes_know_modules_by_their_specs_only():
    modules = {*MODULES} - {"access"}  # every module and the web package use it
    places = [*(tree.SRC / "web").glob("*.py"), tree.SRC / "wiring" / "runtime.py", tree.SRC / "cli" / "process.py"]
    for path in places:
        named = set(re.findall(r"^(?:from|import) penstock\.(\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
        assert not named & modules, path


def test_the_modules_of_the_product_share_one_folder_of_migrations(tmp_path: Path):
    assert migration_folders() == []
    assert migration_folders({**MODULES, "toy": ModuleEntry(builds("toy").build, migrations=tmp_path)}) == [tmp_path]
