"""Run state in Redis: one hash per entry, at exactly the entry's key, so that other programs can read it.

`fields` holds the entry's fields as JSON. Strings and numbers are also stored as separate hash fields (phase, progress,
attempts, pointers) for those other programs only; nothing here reads them.

One script guards each put. Two kinds of sorted sets accompany the hashes: one per status, listing its keys in byte
order, and one for all, holding when each (status, key) expires. Redis expires a hash by itself but not its set members,
so a listing drops members whose hash is gone, and `sweep` drops the rest.

Our clock decides whether an entry has expired, as in the database; the Redis TTL only frees memory.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from penstock.adapters.redis.client import RedisClient, Script
from penstock.kernel.clock import Clock
from penstock.kernel.json_object import JsonObject
from penstock.kernel.rate_limits import EPOCH
from penstock.kernel.runstate import RunMovedOn, RunSnapshot

LISTS = "penstock:runs:"  # followed by a status: its keys
ENDS = "penstock:run-ends"  # "status NUL key", scored by its expiry in microseconds
FIELDS = ("run", "order", "status", "final", "fields", "ends_at", "token")
RESERVED_FIELDS = {"place", *FIELDS}  # hash fields used by the scripts
BATCH = 200  # entries per script call: Redis serves nobody else while a script runs

# `place` is run and order as one sortable string: Lua numbers are doubles and would round a large order.
PUT = Script("""
local key, ends, lists = KEYS[1], KEYS[2], ARGV[1]
local now, milliseconds, place = tonumber(ARGV[2]), ARGV[3], ARGV[4]
local run, order, status, final, fields, ends_at = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local token, by_token = ARGV[11], ARGV[12]
local old = redis.call('HMGET', key, 'place', 'run', 'final', 'ends_at', 'status', 'token')
if old[1] and tonumber(old[4]) > now then
    local run_is_over = old[2] == run and old[3] == '1'
    if place <= old[1] or run_is_over then return 0 end
    if by_token == '1' and old[6] ~= token then return 0 end
end
if old[5] and old[5] ~= status then
    redis.call('ZREM', lists .. old[5], key)
    redis.call('ZREM', ends, old[5] .. '\\0' .. key)
end
redis.call('DEL', key)
redis.call('HSET', key, 'place', place, 'run', run, 'order', order, 'status', status, 'final', final,
    'fields', fields, 'ends_at', ends_at, 'token', token, unpack(ARGV, 13))
redis.call('PEXPIRE', key, milliseconds)
redis.call('ZADD', lists .. status, 0, key)
redis.call('ZADD', ends, ends_at, status .. '\\0' .. key)
return 1
""")

# Returns the live entries, each with its key.
MANY = Script("""
local now, entries = tonumber(ARGV[1]), {}
for _, key in ipairs(KEYS) do
    local entry = redis.call('HMGET', key, 'run', 'order', 'status', 'final', 'fields', 'ends_at', 'token')
    if entry[6] and tonumber(entry[6]) > now then
        entry[8] = key
        entries[#entries + 1] = entry
    end
end
return entries
""")

# Returns the number of keys examined, the last of them, and the live entries, each with its key.
LIST = Script("""
local list, status, now = KEYS[1], ARGV[1], tonumber(ARGV[2])
local keys = redis.call('ZRANGEBYLEX', list, '(' .. ARGV[3], '+', 'LIMIT', 0, ARGV[4])
local entries = {}
for _, key in ipairs(keys) do
    local entry = redis.call('HMGET', key, 'run', 'order', 'status', 'final', 'fields', 'ends_at', 'token')
    if entry[3] == status and tonumber(entry[6]) > now then
        entry[8] = key
        entries[#entries + 1] = entry
    else
        redis.call('ZREM', list, key)
    end
end
return {#keys, keys[#keys] or '', entries}
""")

# Returns the number of dropped members. A put also moves the score, so renewed entries are not found here.
SWEEP = Script("""
local ends, lists, now = KEYS[1], ARGV[1], tonumber(ARGV[2])
local over = redis.call('ZRANGEBYSCORE', ends, '-inf', ARGV[2], 'LIMIT', 0, ARGV[3])
for _, member in ipairs(over) do
    local cut = string.find(member, '\\0', 1, true)
    local status, key = string.sub(member, 1, cut - 1), string.sub(member, cut + 1)
    local entry = redis.call('HMGET', key, 'status', 'ends_at')
    redis.call('ZREM', ends, member)
    redis.call('ZREM', lists .. status, key)
    if entry[1] == status and tonumber(entry[2]) <= now then redis.call('UNLINK', key) end
end
return #over
""")


class RedisRunState:
    """Run state in Redis."""

    in_rows = False

    def __init__(self, redis: RedisClient, clock: Clock, *, live_seconds: float, final_seconds: float) -> None:
        self._redis = redis
        self._clock = clock
        self._live = timedelta(seconds=live_seconds)
        self._final = timedelta(seconds=final_seconds)

    async def put(self, snapshot: RunSnapshot) -> None:
        """Store a snapshot that is later than the stored one, whoever wrote that; raises `RunMovedOn` otherwise."""
        await self._execute(snapshot, by_token=False)

    async def put_held(self, snapshot: RunSnapshot) -> None:
        """Store a later snapshot of the same holder; raises `RunMovedOn` also if the stored token is another."""
        await self._execute(snapshot, by_token=True)

    async def _execute(self, snapshot: RunSnapshot, *, by_token: bool) -> None:
        run, order, fields = snapshot.run, snapshot.order, snapshot.fields
        now, lives = self._now(), _micros(self._final if snapshot.final else self._live)
        time = (now, -(-lives // 1000))
        place = f"{run + 2**31:010d}{order + 2**63:020d}"
        what = (run, order, snapshot.status, int(snapshot.final), msgspec.json.encode(fields), now + lives)
        holder = (snapshot.token or "", int(by_token))
        if not await self._redis.run_script(
            PUT, (snapshot.key, ENDS), LISTS, *time, place, *what, *holder, *_readable_fields(fields)
        ):
            raise RunMovedOn(key=snapshot.key, run=run, order=order)

    async def get(self, key: str) -> RunSnapshot | None:
        """The entry, or None if it is missing or expired."""
        values = await self._redis.execute("HMGET", key, *FIELDS)
        ends_at = values[5]
        if ends_at is None or int(ends_at) <= self._now():
            return None
        return _snapshot(key, values)

    async def get_many(self, keys: Sequence[str]) -> Sequence[RunSnapshot]:
        """The live entries among these keys, in no order."""
        entries: list[RunSnapshot] = []
        for start in range(0, len(keys), BATCH):
            found = await self._redis.run_script(MANY, keys[start : start + BATCH], self._now())
            entries += [_snapshot(values[-1].decode(), values) for values in found]
        return entries

    async def list_by_status(self, status: str, *, after: str = "", limit: int = 100) -> Sequence[RunSnapshot]:
        """Entries with a status in key order, starting after `after`."""
        entries: list[RunSnapshot] = []
        last: str | bytes = after
        while len(entries) < limit:
            batch = min(BATCH, limit - len(entries))
            seen, last, found = await self._redis.run_script(LIST, (LISTS + status,), status, self._now(), last, batch)
            entries += [_snapshot(values[-1].decode(), values) for values in found]
            if seen < batch:
                break
        return entries

    async def sweep(self, *, limit: int = 10_000) -> int:
        """Delete expired entries; returns how many."""
        swept = 0
        while swept < limit:
            batch = min(BATCH, limit - swept)
            dropped = await self._redis.run_script(SWEEP, (ENDS,), LISTS, self._now(), batch)
            swept += dropped
            if dropped < batch:
                break
        return swept

    def _now(self) -> int:
        return _micros(self._clock.now() - EPOCH)


def _micros(time: timedelta) -> int:
    return time // timedelta(microseconds=1)


def _readable_fields(fields: JsonObject) -> Iterator[str | bytes]:
    """Names and values of scalar fields, for programs that do not decode JSON; None is left out."""
    for name, value in fields.items():
        if name not in RESERVED_FIELDS and isinstance(value, str | int | float):
            yield name
            yield value if isinstance(value, str) else msgspec.json.encode(value)


def _snapshot(key: str, values: Sequence[Any]) -> RunSnapshot:
    run, order, status, final, fields, _ends_at, token = values[:7]
    return RunSnapshot(
        key=key,
        run=int(run),
        order=int(order),
        status=status.decode(),
        final=final == b"1",
        token=token.decode() if token else None,  # older versions stored none
        fields=msgspec.json.decode(fields),
    )
