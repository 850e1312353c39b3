"""The two profiles that decisions name: a laptop without services, and the engines of scale."""

from dataclasses import dataclass
from pathlib import Path

from penstock.adapters.s3 import S3Bucket

ADMIN_KEY = "sk-the-preset-admin-key-of-the-tests-0001"


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How to start the product, and where its database is."""

    name: str
    settings: dict[str, str]
    database_url: str


def common(folder: Path) -> dict[str, str]:
    """What both have in common: a folder of the test's own, a known admin key, and receivers on this machine."""
    return {
        "PENSTOCK_DATA_DIR": str(folder),
        "PENSTOCK_ADMIN_KEY": ADMIN_KEY,
        "PENSTOCK_WEBHOOK_ALLOW": "127.0.0.0/8",
        "PENSTOCK_SSE_KEEPALIVE_SECONDS": "0.5",
    }


def laptop(folder: Path) -> Profile:
    """SQLite, local files, SQL ports."""
    return Profile(name="laptop", settings=common(folder), database_url=f"sqlite:///{folder / 'penstock.db'}")


def scale(folder: Path, postgres_url: str, redis_url: str, place: S3Bucket) -> Profile:
    """PostgreSQL, Redis with ARQ, S3."""
    assert place.keys is not None
    engines = {
        "PENSTOCK_DATABASE_URL": postgres_url,
        "PENSTOCK_REDIS_URL": redis_url,
        "PENSTOCK_BLOBS_URL": f"s3://{place.bucket}/{place.prefix}",
        "AWS_ACCESS_KEY_ID": place.keys.key_id,
        "AWS_SECRET_ACCESS_KEY": place.keys.secret,
        "AWS_REGION": place.region,
        "AWS_ENDPOINT_URL": place.endpoint,
    }
    return Profile(name="scale", settings=common(folder) | engines, database_url=postgres_url)
