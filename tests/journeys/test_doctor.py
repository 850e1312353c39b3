"""`penstock doctor` from outside: what it finds, and what it says to do."""

import json
from pathlib import Path

import pytest

from tests.journeys.command import free_port, run
from tests.journeys.profiles import Profile
from tests.servers.postgres import PostgresServer


def verdicts(output: str) -> dict[str, str]:
    """What was found about each part; of several findings the last."""
    return {finding["name"]: finding["verdict"] for finding in json.loads(output)}


def test_a_set_up_that_fits_is_found_well(profile: Profile):
    found = run("doctor", "--json", cwd=None, **profile.settings)
    assert found.returncode == 0, found.stdout
    wrong = {name: verdict for name, verdict in verdicts(found.stdout).items() if verdict == "wrong"}
    assert not wrong
    looked_at = {"settings", "data folder", "database", "redis", "blobs", "tokens", "sandbox", "models", "mineru"}
    assert looked_at <= set(verdicts(found.stdout))
    if profile.name == "scale":
        assert {"database clock", "redis clock", "keys", "processes"} <= set(verdicts(found.stdout))


def test_what_is_away_is_named_with_what_to_do(tmp_path: Path):
    found = run(
        "doctor",
        PENSTOCK_DATA_DIR=str(tmp_path),
        PENSTOCK_REDIS_URL="redis://:geheim@127.0.0.1:1/0",
        PENSTOCK_BLOBS_URL="s3://nowhere/at-all",
        AWS_ACCESS_KEY_ID="k",
        AWS_SECRET_ACCESS_KEY="geheim",
        AWS_ENDPOINT_URL="http://127.0.0.1:1",
        PENSTOCK_JWT_SECRET="geheim",
    )
    assert found.returncode == 1
    assert "✗ redis" in found.stdout
    assert "✗ blobs" in found.stdout
    assert "✗ tokens" in found.stdout
    assert "Check that Redis is running" in found.stdout
    assert "geheim" not in found.stdout + found.stderr


def test_a_misspelt_setting_is_named_with_what_may_have_been_meant(tmp_path: Path):
    found = run("doctor", PENSTOCK_DATA_DIR=str(tmp_path), PENSTOCK_REDIS_URI="redis://h")
    assert found.returncode == 0
    assert "! settings        PENSTOCK_REDIS_URI is not a known setting" in found.stdout
    assert "Did you mean PENSTOCK_REDIS_URL?" in found.stdout


def test_a_database_that_is_not_migrated_is_wrong(tmp_path: Path):
    with PostgresServer.start() as postgres:
        postgres.create_database("bare")
        found = run("doctor", PENSTOCK_DATA_DIR=str(tmp_path), PENSTOCK_DATABASE_URL=postgres.url("bare"))
    assert found.returncode == 1
    assert "Run `penstock migrate`." in found.stdout


def test_what_is_far_away_is_looked_at_without_showing_a_key(tmp_path: Path):
    found = run(
        "doctor",
        PENSTOCK_DATA_DIR=str(tmp_path),
        LLM_BASE_URL="http://127.0.0.1:1/v1",
        LLM_API_KEY="geheim",
        MINERU_API_KEY="geheim",
    )
    assert found.returncode == 0, found.stdout
    assert "! models          default has no model" in found.stdout
    assert "! mineru          MINERU_API_KEY is set, but not used" in found.stdout
    assert "geheim" not in found.stdout + found.stderr


def test_a_mineru_that_cannot_read_is_named(tmp_path: Path):
    folder = str(tmp_path)
    without_key = run("doctor", PENSTOCK_DATA_DIR=folder, ETL_OCR_PROVIDER="mineru")
    assert without_key.returncode == 1
    assert "✗ mineru" in without_key.stdout
    assert "Set MINERU_API_KEY" in without_key.stdout
    nobody = "http://127.0.0.1:1"
    away = run("doctor", PENSTOCK_DATA_DIR=folder, ETL_OCR_PROVIDER="mineru", MINERU_API_ENDPOINT=nobody)
    assert away.returncode == 1
    assert "cannot connect" in away.stdout


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"PENSTOCK_ADMIN_KEY": "short"}, "PENSTOCK_ADMIN_KEY cannot be used"),
        ({"PENSTOCK_JOB_QUEUE": "arq"}, "ARQ needs Redis"),
        ({"PENSTOCK_WEBHOOK_ALLOW": "everything"}, "PENSTOCK_WEBHOOK_ALLOW"),
        ({"PENSTOCK_DATA_DIR": "/proc/nowhere"}, "/proc"),
    ],
)
def test_doctor_refuses_what_serve_refuses(settings: dict[str, str], told: str, tmp_path: Path):
    settings = {"PENSTOCK_DATA_DIR": str(tmp_path / "data"), **settings}
    refused, found = run("serve", "--port", str(free_port()), cwd=None, **settings), run("doctor", cwd=None, **settings)
    assert (refused.returncode, found.returncode) == (1, 1)
    assert told in refused.stderr
    assert told in found.stdout
