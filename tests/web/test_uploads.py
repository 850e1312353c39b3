"""Uploaded documents have a size limit of their own; all other bodies share one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.access.domain import Caller, Scope
from penstock.settings import Settings
from penstock.settings.etl import EtlSettings
from penstock.web.app import App, build_app
from penstock.wiring import open_runtime
from tests.asgi import Response, send_request
from tests.etl.api_client import BOUNDARY, form_of
from tests.fakes.authenticators import FixedCallers


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    settings = Settings(data_dir=tmp_path, body_bytes=1000, etl=EtlSettings(max_file_bytes=100_000))
    async with open_runtime(settings) as runtime:
        built = build_app(runtime)
        built.state.access = FixedCallers(anna=Caller(name="anna", user_id=5, scope=Scope.WRITE))
        yield built


async def upload(app: App, size_bytes: int) -> Response:
    form = form_of({'name="file"; filename="a.txt"': b"x" * size_bytes, 'name="project_id"': b"3"})
    pieces = [form[start : start + 4096] for start in range(0, len(form), 4096)]
    kind = f"multipart/form-data; boundary={BOUNDARY}"
    return await send_request(
        app, "POST", "/api/v1/etl/upload_and_submit", *pieces, x_api_key="anna", content_type=kind
    )


async def test_a_document_may_be_larger_than_other_bodies(app: App):
    assert (await upload(app, 50_000)).status == 202


async def test_a_document_over_its_limit_is_refused(app: App):
    answer = await upload(app, 150_000)
    assert (answer.status, answer.json["code"]) == (413, "UPLOAD_TOO_LARGE")


async def test_other_routes_of_the_module_keep_the_common_limit(app: App):
    body = b'{"project_id": 3, "filename": "' + b"a" * 2000 + b'"}'
    answer = await send_request(
        app, "POST", "/api/v1/etl/submit", body, x_api_key="anna", content_type="application/json"
    )
    assert (answer.status, answer.json["code"]) == (413, "BODY_TOO_LARGE")
