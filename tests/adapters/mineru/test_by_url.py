"""Documents that the cloud fetches by a presigned URL of the store, and the fallback to uploads."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

import aiohttp
import pytest

from penstock.adapters.mineru.errors import MineruUrlUnreachable
from penstock.adapters.s3 import S3Blobs, S3Bucket
from penstock.kernel.clock import SystemClock
from penstock.kernel.sandbox.call import Sandbox
from tests.adapters.mineru import zips
from tests.adapters.mineru.harness import KEY, ReaderHarness
from tests.documents import pdf_files as making
from tests.fakes.mineru_server import MineruCloud, Said

pytestmark = pytest.mark.asyncio(loop_scope="module")

BY_LINK = "POST /api/v4/extract/task/batch"
BY_UPLOAD = "POST /api/v4/file-urls/batch"


@pytest.fixture
def harness(sandbox: Sandbox, s3_bucket: S3Bucket, tmp_path: Path) -> ReaderHarness:
    """A store that offers URLs."""
    blobs = S3Blobs(s3_bucket, clock=SystemClock())
    return ReaderHarness(blobs=blobs, sandbox=sandbox, scratch=tmp_path / "scratch")


@pytest.fixture(autouse=True)
def good_result(cloud: MineruCloud) -> None:
    cloud.result = lambda tag, content: zips.pages(f"{tag}.")


async def fetched(url: str) -> bytes:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status == 200
        return await answer.read()


async def test_a_document_is_fetched_by_url_and_not_uploaded(harness: ReaderHarness, cloud: MineruCloud):
    paper = making.pages_of("one")
    reading = await harness.read(cloud, paper)
    (file,) = cloud.heard(BY_LINK)[0].asked["files"]
    assert await fetched(file["url"]) == paper
    assert reading.provider_task_id == "linked-1"
    assert cloud.count("PUT") == 0


async def test_a_url_reveals_only_the_format_of_a_document(harness: ReaderHarness, cloud: MineruCloud):
    await harness.read(cloud, making.pages_of("one"), "no ending")
    (file,) = cloud.heard(BY_LINK)[0].asked["files"]
    assert urlsplit(file["url"]).path.endswith("/mineru/part-0001.pdf")
    assert KEY not in unquote(file["url"])


async def test_each_part_has_its_own_url(harness: ReaderHarness, cloud: MineruCloud):
    reading = await harness.read(cloud, making.pages_of("one", "two", "three"), max_pages=2)
    files = cloud.heard(BY_LINK)[0].asked["files"]
    assert [file["data_id"] for file in files] == ["part-0001", "part-0002"]
    assert [(await fetched(file["url"]))[:5] for file in files] == [b"%PDF-", b"%PDF-"]
    assert reading.page_count == 3
    assert harness.left_over() == []


async def test_a_document_is_uploaded_where_that_is_set(harness: ReaderHarness, cloud: MineruCloud):
    await harness.read(cloud, making.pages_of("one"), source="upload")
    assert cloud.count(BY_LINK) == 0
    assert cloud.count("PUT") == 1


async def test_a_url_that_mineru_cannot_fetch_is_followed_by_an_upload(harness: ReaderHarness, cloud: MineruCloud):
    cloud.unreachable = True
    reading = await harness.read(cloud, making.pages_of("one"), source="url")
    assert (cloud.count(BY_LINK), cloud.count(BY_UPLOAD), cloud.count("PUT")) == (1, 1, 1)
    assert reading.provider_task_id.startswith("batch-")


async def test_a_call_that_says_so_at_once_is_followed_by_an_upload_too(harness: ReaderHarness, cloud: MineruCloud):
    cloud.say(BY_LINK, Said(json={"code": -60008, "msg": "reading the url timed out"}))
    await harness.read(cloud, making.pages_of("one"))
    assert cloud.count("PUT") == 1


async def test_an_upload_that_cannot_be_read_by_its_address_is_an_attempt(harness: ReaderHarness, cloud: MineruCloud):
    cloud.unreachable = True
    refusal = Said(json={"code": -60008, "msg": "timed out"})
    cloud.say(BY_UPLOAD, refusal)
    with pytest.raises(MineruUrlUnreachable):
        await harness.read(cloud, making.pages_of("one"))
    await harness.read(cloud, making.pages_of("one"))
    assert cloud.count(BY_LINK) == 1  # that cannot connect was kept
