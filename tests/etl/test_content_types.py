"""Artifacts have content types, for clients that fetch blobs directly."""

from pathlib import Path

from penstock.adapters.local_reader.artifacts import ReadingArtifacts
from penstock.adapters.s3 import S3Blobs, S3Bucket
from penstock.documents.ocr.provider import Reading
from penstock.documents.pages import Page
from penstock.kernel.clock import ManualClock, SystemClock
from tests.etl.harness import EtlProfile, open_harness
from tests.servers.seaweed import AnyS3

PAGE = Page(number=1, origin="file", markdown="hello")


def content_type(server: AnyS3, place: S3Bucket, key: str) -> str:
    return server.head(f"/{place.bucket}/{place.root}{key}")["content-type"]


async def test_a_result_is_json(
    sqlite_url: str, tmp_path: Path, clock: ManualClock, s3_server: AnyS3, s3_bucket: S3Bucket
):
    profile = EtlProfile(database=sqlite_url, scratch=tmp_path, bucket=s3_bucket)
    async with open_harness(profile, clock) as harness:
        await harness.submit()
        await harness.work()
        stored = [key for key in await harness.keys() if key.endswith(".json")]
        assert "users/5/processed/3/a.txt.json" in stored
        assert {content_type(s3_server, s3_bucket, key) for key in stored} == {"application/json"}


async def test_what_was_read_is_markdown_and_lines_of_json(s3_server: AnyS3, s3_bucket: S3Bucket, tmp_path: Path):
    artifacts = ReadingArtifacts(S3Blobs(s3_bucket, clock=SystemClock()), "folder/", tmp_path)
    made = Reading(
        markdown_key=artifacts.markdown_key, pages_key=artifacts.pages_key, provider_task_id="local-1", page_count=1
    )
    async with artifacts.result_files() as files:
        files.add([PAGE])
        await artifacts.finish(files, made)
    assert content_type(s3_server, s3_bucket, made.markdown_key) == "text/markdown; charset=utf-8"
    assert content_type(s3_server, s3_bucket, made.pages_key) == "application/x-ndjson"
