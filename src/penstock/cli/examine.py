"""What the doctor looks at. Each examination gives findings; one that cannot go on is a finding itself."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from sqlalchemy import text

from penstock.access import store
from penstock.adapters.jwks import jwks_over_http
from penstock.adapters.mineru.errors import MineruKeyMissing
from penstock.adapters.mineru.selfhosted import SelfHosted
from penstock.adapters.mineru.wire import Wire
from penstock.adapters.redis.link import RedisLink
from penstock.kernel.backlog import list_rooms_waiting
from penstock.kernel.clock import SystemClock
from penstock.kernel.db import Db
from penstock.kernel.errors import PenstockError
from penstock.kernel.ids import new_token
from penstock.kernel.migrations import pending
from penstock.kernel.processes import list_processes
from penstock.kernel.sandbox.call import Sandbox
from penstock.settings import Settings, unknown
from penstock.wiring import engines
from penstock.wiring.models import list_servers, mineru_terms

SKEW_SECONDS = 2.0  # leases and rates are reckoned by each machine's own clock
LEAST_FREE_BYTES = 1024**3
PATIENCE_SECONDS = 15
CALM = "noeviction"


class Verdict(StrEnum):
    """How a thing was found."""

    WELL = "well"
    NOTE = "note"
    WRONG = "wrong"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at. `remedy` says what to do."""

    name: str
    verdict: Verdict
    detail: str
    remedy: str = ""


Findings = AsyncIterator[Finding]


async def examine(settings: Settings) -> list[Finding]:
    """Look at everything, one after another."""
    every: list[tuple[str, Callable[[Settings], Findings]]] = [
        ("settings", _settings),
        ("data folder", _data_folder),
        ("database", _database),
        ("redis", _redis),
        ("blobs", _blobs),
        ("tokens", _tokens),
        ("sandbox", _sandbox),
        ("models", _models),
        ("mineru", _mineru),
    ]
    return [finding for name, look in every for finding in await _look(name, look(settings))]


async def _look(name: str, findings: Findings) -> list[Finding]:
    """What one examination finds; when it raises or takes too long, that is the last finding."""
    found = []
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for finding in findings:
                found.append(finding)  # noqa: PERF401  (what was found before it raises counts)
    except PenstockError as error:
        found.append(Finding(name=name, verdict=Verdict.WRONG, detail=str(error), remedy=error.hint))
    except TimeoutError:
        detail = f"no answer within {PATIENCE_SECONDS} s"
        found.append(Finding(name=name, verdict=Verdict.WRONG, detail=detail, remedy="Look whether it runs."))
    return found


async def _settings(_settings: Settings) -> Findings:
    for name, meant in unknown().items():
        remedy = f"Did you mean {meant}?" if meant else "Every setting is listed in docs/reference/settings.md."
        yield Finding(name="settings", verdict=Verdict.NOTE, detail=f"{name} is no setting", remedy=remedy)
    yield Finding(name="settings", verdict=Verdict.WELL, detail="all values can be used")


async def _data_folder(settings: Settings) -> Findings:
    folder = settings.data_dir.absolute()
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if not os.access(existing, os.W_OK):
        detail, remedy = (
            f"{existing} cannot be written",
            "Choose another PENSTOCK_DATA_DIR, or give the right to write.",
        )
        yield Finding(name="data folder", verdict=Verdict.WRONG, detail=detail, remedy=remedy)
        return
    free = shutil.disk_usage(existing).free
    verdict = Verdict.WELL if free >= LEAST_FREE_BYTES else Verdict.NOTE
    remedy = "" if verdict is Verdict.WELL else "Free some space: when the disk is full nothing can be taken in."
    yield Finding(name="data folder", verdict=verdict, detail=f"{folder}, {free / 1e9:.1f} GB free", remedy=remedy)


async def _database(settings: Settings) -> Findings:
    if settings.embedded and not os.access(settings.database.removeprefix("sqlite:///"), os.F_OK):
        yield Finding(name="database", verdict=Verdict.WELL, detail="SQLite; made at the first start")
        return
    async with _opened(settings) as db:
        steps = await pending(db)
        remedy = "Run `penstock migrate`." if steps and not settings.embedded else ""
        verdict = Verdict.WRONG if remedy else Verdict.WELL
        kind = "PostgreSQL" if db.on_postgres else "SQLite"
        detail = f"{kind}, {len(steps)} steps to take" if steps else f"{kind}, up to date"
        yield Finding(name="database", verdict=verdict, detail=detail, remedy=remedy)
        if steps:
            return
        async for finding in _inside(db):
            yield finding


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Db]:
    db = engines.open_database(settings)
    try:
        yield db
    finally:
        await db.close()


async def _inside(db: Db) -> Findings:
    async with db.read() as tx:
        there = await tx.conn.scalar(text("SELECT clock_timestamp()")) if db.on_postgres else None
        keys = await store.count_keys(tx)
        alive = [one for one in await list_processes(tx) if one.alive]
        waiting = [one for one in await list_rooms_waiting(tx) if one.room not in {r for p in alive for r in p.rooms}]
    if there is not None:
        yield _skew("database clock", there, db.clock.now())
    remedy = "" if keys else "`penstock serve` makes the first one, or `penstock keys create --name me --scope admin`."
    yield Finding(name="keys", verdict=Verdict.WELL if keys else Verdict.NOTE, detail=f"{keys} keys", remedy=remedy)
    yield Finding(name="processes", verdict=Verdict.WELL, detail=f"{len(alive)} alive")
    for one in waiting:
        detail = (
            f"work waits in {one.room or 'the default room'} since {one.since:%Y-%m-%d %H:%M} and nobody works there"
        )
        yield Finding(name="rooms", verdict=Verdict.NOTE, detail=detail, remedy="Start `penstock work`.")


async def _redis(settings: Settings) -> Findings:
    if not settings.redis_url:
        yield Finding(name="redis", verdict=Verdict.WELL, detail="none is set; the database does its work")
        return
    link = RedisLink(settings.redis_url, SystemClock())
    try:
        with link.faults():
            server, memory = await link.client.info("server"), await link.client.info("memory")
            seconds, micros = await link.client.time()
    finally:
        await link.close()
    yield Finding(name="redis", verdict=Verdict.WELL, detail=f"version {server['redis_version']}")
    policy = memory.get("maxmemory_policy", CALM)
    if policy != CALM:
        detail, remedy = f"it may forget by itself ({policy})", f"Set maxmemory-policy to {CALM}."
        yield Finding(name="redis memory", verdict=Verdict.NOTE, detail=detail, remedy=remedy)
    there = datetime.fromtimestamp(seconds + micros / 1e6, UTC)
    yield _skew("redis clock", there, SystemClock().now())


async def _blobs(settings: Settings) -> Findings:
    blobs = engines.build_blobs(settings, SystemClock())
    await blobs.check()
    key, body = f"penstock-doctor/{new_token()}", b"doctor"
    await blobs.put(key, body)
    same = await blobs.get(key) == body
    await blobs.delete(key)
    verdict = Verdict.WELL if same else Verdict.WRONG
    yield Finding(name="blobs", verdict=verdict, detail="written, read back and deleted" if same else "read back wrong")


async def _tokens(settings: Settings) -> Findings:
    engines.build_tokens(settings, SystemClock())  # refuses what can never work
    if settings.jwks_url:
        await jwks_over_http(settings.jwks_url)()
    kinds = [name for name, on in (("a secret", settings.jwt_secret), ("a key set", settings.jwks_url)) if on]
    yield Finding(name="tokens", verdict=Verdict.WELL, detail=f"JWTs by {' and '.join(kinds)}" if kinds else "no JWTs")


async def _sandbox(_settings: Settings) -> Findings:
    async with Sandbox() as sandbox:
        missing = (await sandbox.guards()).missing
    detail = f"without {', '.join(missing)}" if missing else "every guard holds"
    remedy = "Foreign files are held back by fewer walls here; a newer kernel or fewer container limits give more."
    verdict = Verdict.NOTE if missing else Verdict.WELL
    yield Finding(name="sandbox", verdict=verdict, detail=detail, remedy=remedy if missing else "")


async def _models(settings: Settings) -> Findings:
    servers, llm = list_servers(settings.llm), settings.llm
    if not llm.base_url and (llm.api_key or llm.model):
        detail, remedy = "a key or a model is set, but no server", "Set LLM_BASE_URL."
        yield Finding(name="models", verdict=Verdict.NOTE, detail=detail, remedy=remedy)
    for one in servers:
        if not one.model:
            detail, remedy = f"{one.name} has no model", "Set one (LLM_MODEL), or let every rule name its own."
            yield Finding(name="models", verdict=Verdict.NOTE, detail=detail, remedy=remedy)
    names = ", ".join(one.name for one in servers)
    detail = f"{names}; not asked, for that may cost" if servers else "none is set; rules of the mode llm are refused"
    yield Finding(name="models", verdict=Verdict.WELL, detail=detail)


async def _mineru(settings: Settings) -> Findings:
    if settings.etl.ocr_provider != "mineru":
        yield _idle_mineru(settings)
        return
    terms = mineru_terms(settings)
    if terms.spoken == "cloud":
        if not terms.api_key:
            raise MineruKeyMissing
        yield Finding(name="mineru", verdict=Verdict.WELL, detail="its cloud, by a key that is not tried here")
        return
    wire = Wire(terms.address, "")
    try:
        version = await SelfHosted(wire, SystemClock(), terms).check()
    finally:
        await wire.close()
    told = f"version {version}" if version else "from before version 3"
    yield Finding(name="mineru", verdict=Verdict.WELL, detail=f"a server of your own, {told}")


def _idle_mineru(settings: Settings) -> Finding:
    if not settings.mineru.api_key:
        return Finding(name="mineru", verdict=Verdict.WELL, detail="not used; this machine reads documents")
    remedy = "Set ETL_OCR_PROVIDER=mineru, if MinerU is to read documents."
    return Finding(name="mineru", verdict=Verdict.NOTE, detail="MINERU_API_KEY is set, but not used", remedy=remedy)


def _skew(name: str, there: datetime, here: datetime) -> Finding:
    seconds = abs((there - here).total_seconds())
    if seconds <= SKEW_SECONDS:
        return Finding(name=name, verdict=Verdict.WELL, detail=f"{seconds:.2f} s from ours")
    remedy = "Let both machines keep time by NTP: leases and rates go by the clock."
    return Finding(name=name, verdict=Verdict.WRONG, detail=f"{seconds:.0f} s from ours", remedy=remedy)
