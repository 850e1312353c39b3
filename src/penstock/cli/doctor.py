"""`penstock doctor`: check the installation and say what to do about unavailable services and misspelt settings.

Each check yields findings without secrets; an error becomes one. What `serve` would refuse, doctor finds wrong. It
creates nothing: a folder that is missing is checked by whether it can be made.
"""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import typer
from msgspec import json
from rich.console import Console
from rich.markup import escape

from penstock.access import keys, store
from penstock.adapters.disk import DiskBlobs
from penstock.adapters.jwks import jwks_over_http
from penstock.adapters.mineru.errors import MineruKeyMissing
from penstock.adapters.mineru.http import MineruHttp
from penstock.adapters.mineru.selfhosted import SelfHosted
from penstock.adapters.redis.client import RedisClient
from penstock.cli.database import database_path, describe_database, load_settings
from penstock.cli.text import show_time
from penstock.kernel.backlog import list_module_backlogs
from penstock.kernel.clock import SystemClock
from penstock.kernel.db import Db
from penstock.kernel.dialect.sql import find_server_time
from penstock.kernel.errors import PenstockError
from penstock.kernel.ids import new_token
from penstock.kernel.migrations import pending
from penstock.kernel.processes import list_processes
from penstock.kernel.sandbox.call import Sandbox
from penstock.settings import Settings, unknown
from penstock.wiring import backends, migration_folders
from penstock.wiring.models import list_servers, mineru_terms
from penstock.wiring.modules import build_modules

MAX_SKEW_SECONDS = 2.0  # leases and rate limits use each machine's own clock
MIN_FREE_BYTES = 1024**3
CHECK_TIMEOUT_SECONDS = 15
NO_EVICTION = "noeviction"


class DoctorVerdict(StrEnum):
    """The result of one check."""

    WELL = "well"
    NOTE = "note"
    WRONG = "wrong"


MARKS = {DoctorVerdict.WELL: "[green]✓[/]", DoctorVerdict.NOTE: "[yellow]![/]", DoctorVerdict.WRONG: "[red]✗[/]"}


@dataclass(frozen=True, kw_only=True)
class DoctorFinding:
    """What a check found. `remedy` says what to do about it. `--json` prints these fields."""

    name: str
    verdict: DoctorVerdict
    detail: str
    remedy: str = ""


Findings = AsyncIterator[DoctorFinding]


def run_doctor(*, as_json: bool, data_dir: Path | None) -> int:
    """Run all checks and print the findings; returns the exit status."""
    findings = asyncio.run(check_all(load_settings(data_dir)))
    if as_json:
        typer.echo(json.format(json.encode(findings), indent=2))
    else:
        console = Console(highlight=False)
        for finding in findings:
            console.print(f"{MARKS[finding.verdict]} {finding.name:<15} {escape(finding.detail)}", soft_wrap=True)
            if finding.remedy:
                console.print(f"  {'':<15} → {escape(finding.remedy)}", soft_wrap=True)
    return 1 if any(finding.verdict is DoctorVerdict.WRONG for finding in findings) else 0


async def check_all(settings: Settings) -> list[DoctorFinding]:
    """Run the checks one after another."""
    checks: list[tuple[str, Callable[[Settings], Findings]]] = [
        ("settings", _check_settings),
        ("data folder", _check_data_folder),
        ("database", _check_database),
        ("redis", _check_redis),
        ("blobs", _check_blobs),
        ("tokens", _check_tokens),
        ("sandbox", _check_sandbox),
        ("models", _check_models),
        ("mineru", _check_mineru),
        ("serve", _check_serve),
    ]
    found: list[DoctorFinding] = []
    for name, check in checks:
        told = {finding.detail for finding in found if finding.verdict is DoctorVerdict.WRONG}
        found += [finding for finding in await _collect(name, check(settings)) if finding.detail not in told]
    return found


async def _collect(name: str, findings: Findings) -> list[DoctorFinding]:
    """The findings of one check. If it fails or times out, that is its last finding."""
    found = []
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_SECONDS):
            async for finding in findings:
                found.append(finding)  # noqa: PERF401  (findings before an error count)
    except PenstockError as error:
        found.append(_wrong(name, str(error), error.terminal_hint or error.hint))
    except TimeoutError:
        found.append(_wrong(name, f"no answer within {CHECK_TIMEOUT_SECONDS} s", "Check that it is running."))
    return found


def _well(name: str, detail: str) -> DoctorFinding:
    return DoctorFinding(name=name, verdict=DoctorVerdict.WELL, detail=detail)


def _note(name: str, detail: str, remedy: str) -> DoctorFinding:
    return DoctorFinding(name=name, verdict=DoctorVerdict.NOTE, detail=detail, remedy=remedy)


def _wrong(name: str, detail: str, remedy: str = "") -> DoctorFinding:
    return DoctorFinding(name=name, verdict=DoctorVerdict.WRONG, detail=detail, remedy=remedy)


async def _check_settings(_settings: Settings) -> Findings:
    for name, suggestion in unknown().items():
        remedy = f"Did you mean {suggestion}?" if suggestion else "docs/reference/settings.md lists every setting."
        yield _note("settings", f"{name} is not a known setting", remedy)
    yield _well("settings", "all values are valid")


async def _check_data_folder(settings: Settings) -> Findings:
    folder = settings.data_dir.absolute()
    if problem := _find_folder_problem(folder):
        yield _wrong("data folder", problem, "Choose another PENSTOCK_DATA_DIR or --data-dir, or grant permission.")
        return
    free = shutil.disk_usage(_existing(folder)).free
    detail = f"{folder}, {free / 1e9:.1f} GB free" + ("" if folder.exists() else "; created at the first start")
    if free < MIN_FREE_BYTES:
        yield _note("data folder", detail, "Free some disk space: nothing is accepted when the disk is full.")
    else:
        yield _well("data folder", detail)


async def _check_database(settings: Settings) -> Findings:
    name = describe_database(settings)
    if settings.embedded and not (path := database_path(settings)).exists():
        if problem := _find_folder_problem(path.parent):
            yield _wrong("database", problem, "Choose another folder, or grant permission.")
        else:
            yield _well("database", f"{name}; created at the first start")
        return
    async with _open_database(settings) as db:
        if steps := await pending(db, migration_folders()):
            detail = f"{name}, {len(steps)} pending migrations"
            if settings.embedded:  # applied at the next start
                yield _well("database", detail)
            else:
                yield _wrong("database", detail, "Run `penstock migrate`.")
            return
        yield _well("database", f"{name}, up to date")
        async for finding in _check_contents(db):
            yield finding


def _existing(folder: Path) -> Path:
    return next(parent for parent in (folder, *folder.parents) if parent.exists())


def _find_folder_problem(folder: Path) -> str:
    """Why a folder cannot be written to, or cannot be made. Tried, since permissions do not tell of every mount."""
    existing = _existing(folder)
    try:
        Path(tempfile.mkdtemp(prefix=".penstock-doctor-", dir=existing)).rmdir()
    except OSError as error:
        return f"{existing} is not writable ({error.strerror})"
    return ""


@asynccontextmanager
async def _open_database(settings: Settings) -> AsyncIterator[Db]:
    db = backends.open_database(settings)
    try:
        yield db
    finally:
        await db.close()


async def _check_contents(db: Db) -> Findings:
    async with db.read() as tx:
        database_time = await find_server_time(tx)
        keys = await store.count_keys(tx)
        alive = [process for process in await list_processes(tx) if process.alive]
        served = {module for process in alive for module in process.modules}
        unserved = [waiting for waiting in await list_module_backlogs(tx) if waiting.module not in served]
    if database_time is not None:
        yield _check_clock("database clock", database_time, db.clock.now())
    if keys:
        yield _well("keys", f"{keys} keys")
    else:
        remedy = "`penstock serve` creates the first one, or `penstock keys create --name me --scope admin`."
        yield _note("keys", "0 keys", remedy)
    yield _well("processes", f"{len(alive)} alive")
    for waiting in unserved:
        module = f"module {waiting.module}" if waiting.module else "the default module"
        detail = f"jobs of {module} wait since {show_time(waiting.since)} and no worker takes them"
        yield _note("rooms", detail, "Start `penstock work`.")


async def _check_redis(settings: Settings) -> Findings:
    if not settings.redis_url:
        yield _well("redis", "not configured; the database is used instead")
        return
    link = RedisClient(settings.redis_url, SystemClock())
    try:
        with link.mapped_errors():
            server, memory = await link.raw.info("server"), await link.raw.info("memory")
            seconds, micros = await link.raw.time()
    finally:
        await link.close()
    yield _well("redis", f"version {server['redis_version']}")
    policy = memory.get("maxmemory_policy", NO_EVICTION)
    if policy != NO_EVICTION:
        yield _note("redis memory", f"it may evict keys ({policy})", f"Set maxmemory-policy to {NO_EVICTION}.")
    redis_time = datetime.fromtimestamp(seconds + micros / 1e6, UTC)
    yield _check_clock("redis clock", redis_time, SystemClock().now())


async def _check_blobs(settings: Settings) -> Findings:
    blobs = backends.build_blobs(settings, SystemClock())
    if isinstance(blobs, DiskBlobs) and not blobs.folder.exists():
        if problem := _find_folder_problem(blobs.folder.absolute()):
            yield _wrong("blobs", problem, "Choose another PENSTOCK_BLOBS_URL, or grant permission.")
        else:
            yield _well("blobs", f"{blobs.folder.absolute()}; created at the first start")
        return
    await blobs.check()
    if isinstance(blobs, DiskBlobs):
        yield _well("blobs", f"{blobs.folder.absolute()} is writable")
        return
    key, body = f"penstock-doctor/{new_token()}", b"doctor"
    await blobs.put(key, body)
    same = await blobs.get(key) == body
    await blobs.delete(key)
    yield _well("blobs", "written, read back and deleted") if same else _wrong("blobs", "read back wrong")


async def _check_tokens(settings: Settings) -> Findings:
    backends.build_tokens(settings, SystemClock())  # raises for settings that cannot work
    if settings.jwks_url:
        await jwks_over_http(settings.jwks_url)()
    kinds = [name for name, on in (("secret", settings.jwt_secret), ("JWKS", settings.jwks_url)) if on]
    yield _well("tokens", f"JWTs verified by {' and '.join(kinds)}" if kinds else "JWTs are not accepted")


async def _check_sandbox(_settings: Settings) -> Findings:
    async with Sandbox() as sandbox:
        missing = (await sandbox.guards()).missing
    if missing:
        remedy = "Untrusted files are less isolated here; a newer kernel or fewer container limits give more."
        yield _note("sandbox", f"without {', '.join(missing)}", remedy)
    else:
        yield _well("sandbox", "all protections are available")


async def _check_models(settings: Settings) -> Findings:
    servers, llm = list_servers(settings.llm), settings.llm
    if not llm.base_url and (llm.api_key or llm.model):
        yield _note("models", "a key or a model is set, but no server", "Set LLM_BASE_URL.")
    for server in servers:
        if not server.model:
            yield _note("models", f"{server.name} has no model", "Set one (LLM_MODEL), or name one in every rule.")
    if servers:
        names = ", ".join(server.name for server in servers)
        yield _well("models", f"{names}; not called, since a call may cost money")
    else:
        yield _well("models", "no server is set; rules with mode llm are refused")


async def _check_mineru(settings: Settings) -> Findings:
    if settings.etl.ocr_provider != "mineru":
        if settings.mineru.api_key:
            remedy = "Set ETL_OCR_PROVIDER=mineru if MinerU should read documents."
            yield _note("mineru", "MINERU_API_KEY is set, but not used", remedy)
        else:
            yield _well("mineru", "not used; this machine reads documents")
        return
    terms = mineru_terms(settings)
    if terms.resolved_protocol == "cloud":
        if not terms.api_key:
            raise MineruKeyMissing
        yield _well("mineru", "cloud; the key is set and was not tried")
        return
    wire = MineruHttp(terms.address, "")
    try:
        version = await SelfHosted(wire, SystemClock(), terms).check()
    finally:
        await wire.close()
    yield _well("mineru", f"self-hosted, {f'version {version}' if version else 'older than version 3'}")


async def _check_serve(settings: Settings) -> Findings:
    """Build what `serve` builds, with an empty folder for its data, and connect to nothing."""
    if settings.admin_key:
        keys.check_admin_key(settings.admin_key)
    with tempfile.TemporaryDirectory() as folder:
        url = "" if settings.embedded else settings.database_url
        trial = replace(settings, data_dir=Path(folder), database_url=url)
        async with _open_database(trial) as db:
            built = backends.build_backends(trial, db, owner="doctor", preload=())
            try:
                build_modules(trial, db, built)
            finally:
                await built.close()
    yield _well("serve", "the settings fit together")


def _check_clock(name: str, remote: datetime, local: datetime) -> DoctorFinding:
    skew = abs((remote - local).total_seconds())
    if skew <= MAX_SKEW_SECONDS:
        return _well(name, f"{skew:.2f} s from ours")
    return _wrong(name, f"{skew:.0f} s from ours", "Synchronise both clocks by NTP: leases and rate limits use them.")
