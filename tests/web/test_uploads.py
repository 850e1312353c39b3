"""Documents that are uploaded have a bound of their own; everything else keeps the one of all bodies."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.access.domain import Caller, Scope
from penstock.settings import Settings
from penstock.settings.etl import EtlSettings
from penstock.web.app import App, build_app
from penstock.wiring import open_runtime
from tests.etl.asking import BOUNDARY, form_of
from tests.fakes.authenticators import FixedCallers
from tests.kernel.http.asking import Answer, ask


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    settings = Settings(data_dir=tmp_path, body_bytes=1000, etl=EtlSettings(max_file_bytes=100_000))
    async with open_runtime(settings) as house:
        built = build_app(house)
        built.state.access = FixedCallers(anna=Caller(name="anna", user_id=5, scope=Scope.WRITE))
        yield built


async def upload(app: App, size_bytes: int) -> Answer:
    form = form_of({'name="file"; filename="a.txt"': b"x" * size_bytes, 'name="project_id"': b"3"})
    pieces = [form[start : start + 4096] for start in range(0, len(form), 4096)]
    kind = f"multipart/form-data; boundary={BOUNDARY}"
    return await ask(app, "POST", "/api/v1/etl/upload_and_submit", *pieces, x_api_key="anna", content_type=kind)


async def test_a_document_may_be_larger_than_other_bodies(app: App):
    assert (await upload(app, 50_000)).status == 202


async def test_a_document_that_is_larger_than_documents_may_be_is_refused(app: App):
    answer = await upload(app, 150_000)
    assert (answer.status, answer.json["code"]) == (413, "UPLOAD_TOO_LARGE")


async def test_other_routes_of_the_room_keep_the_bound_of_all_bodies(app: App):
    body = b'{"project_id": 3, "filename": "' + b"a" * 2000 + b'"}'
    answer = await ask(app, "POST", "/api/v1/etl/submit", body, x_api_key="anna", content_type="application/json")
    assert (answer.status, answer.json["code"]) == (413, "BODY_TOO_LARGE")
