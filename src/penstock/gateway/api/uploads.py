"""The routes of tus 1.0.0. They read headers and answer with headers; `receive.py` takes the bytes."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from pydantic import BaseModel, Field

from penstock.access.domain import Caller, Scope
from penstock.access.guard import CurrentCaller, public, requires
from penstock.gateway import create, end, store, tus
from penstock.gateway.api.live_writers import LiveWriters
from penstock.gateway.api.receive import Patch, receive, recover
from penstock.gateway.create import NewUpload
from penstock.gateway.deps import Deps
from penstock.gateway.domain import Upload, UploadKind, UploadState, blob_key
from penstock.gateway.errors import BadTusHeader, UploadNotFound, WrongContentType
from penstock.kernel.errors import PenstockError

BASE = "/api/v1/uploads"
HEADERS = ((b"tus-resumable", tus.VERSION.encode()), (b"tus-version", tus.VERSION.encode()))  # of every answer

router = APIRouter(prefix=BASE, tags=["uploads"])


async def _check_version(tus_resumable: Annotated[str | None, Header(description="1.0.0")] = None) -> None:
    tus.check_version(tus_resumable)


async def _deps(request: Request) -> Deps:
    deps: Deps = request.app.state.gateway
    return deps


async def _writers(request: Request) -> LiveWriters:
    writers: LiveWriters = request.app.state.upload_writers
    return writers


TUS_ERRORS = {
    408: "The upload stalled.",
    409: "The offset does not match, or parts of a final upload are missing.",
    410: "The upload has expired.",
    412: "The tus version is not supported.",
    413: "The file is too large.",
    415: "The body of a PATCH is not application/offset+octet-stream.",
    423: "Another request writes to the upload.",
    460: "The checksum does not match.",
}


def tus_route(scope: Scope) -> dict[str, Any]:
    """Arguments for a route's decorator: the version is checked first, then the caller."""
    given = requires(scope)
    errors = {status: {"description": reason} for status, reason in TUS_ERRORS.items()}
    return {**given, "dependencies": [Depends(_check_version), *given["dependencies"]], "responses": errors}


DepsParam = Annotated[Deps, Depends(_deps)]
WritersParam = Annotated[LiveWriters, Depends(_writers)]
UploadId = Annotated[str, Path(max_length=64, description="Upload id.")]


class UploadView(BaseModel):
    """An upload as its owner sees it."""

    id: str
    state: UploadState
    kind: UploadKind
    filename: str
    length: int | None
    offset: int
    created_at: datetime
    updated_at: datetime
    expires_at: datetime


class UploadPage(BaseModel):
    """A page of uploads; `next` asks for the following one."""

    items: list[UploadView]
    next: str | None


def upload_view(upload: Upload) -> UploadView:
    """An upload for its owner."""
    return UploadView.model_validate(upload, from_attributes=True)


class CreationHeaders(BaseModel):
    """The headers of a creation."""

    upload_length: str | None = Field(None, description="The size of the file in bytes.")
    upload_defer_length: str | None = Field(None, description="1: the size follows with a PATCH.")
    upload_metadata: str | None = Field(None, description="Pairs of a key and a base64 value: filename, filetype.")
    upload_concat: str | None = Field(None, description="partial, or final; and the URLs of partial uploads.")
    upload_checksum: str | None = Field(None, description="Of the body: sha1 or sha256, and a base64 checksum.")
    content_type: str | None = Field(None, description="application/offset+octet-stream, if there is a body.")


class PatchHeaders(BaseModel):
    """The headers of a PATCH."""

    upload_offset: str | None = Field(None, description="Where the body begins: at the end of the stored bytes.")
    upload_length: str | None = Field(None, description="The size of the file, if it was deferred.")
    upload_checksum: str | None = Field(None, description="Of the body: sha1 or sha256, and a base64 checksum.")
    content_type: str | None = Field(None, description="application/offset+octet-stream.")


@router.options("", status_code=204, summary="What the server can do", **public())
@router.options("/{upload_id}", status_code=204, summary="What the server can do", include_in_schema=False, **public())
async def options(deps: DepsParam) -> Response:
    """Extensions, checksum algorithms and the largest upload."""
    return Response(status_code=204, headers=dict(tus.options_headers(max_bytes=deps.config.max_bytes)))


@router.post("", status_code=201, summary="Create an upload", **tus_route(Scope.WRITE))
@router.post("/", status_code=201, include_in_schema=False, **tus_route(Scope.WRITE))
async def create_upload(
    request: Request,
    caller: CurrentCaller,
    deps: DepsParam,
    writers: WritersParam,
    given: Annotated[CreationHeaders, Header()],
) -> Response:
    """Answers with the URL of the upload in Location. The body may have the first bytes."""
    concat = tus.read_concat(given.upload_concat)
    pairs = tus.read_metadata(given.upload_metadata)
    new = NewUpload(
        kind=concat.kind,
        length=_read_length(given, concat.kind),
        metadata=given.upload_metadata or "",
        filename=pairs.get("filename", ""),
        filetype=pairs.get("filetype", ""),
        parts=concat.parts,
    )
    create.check_new(deps.config, new)
    body_bytes = _body_bytes(request)
    if body_bytes != 0 and concat.kind is not UploadKind.FINAL:
        _check_content_type(given.content_type)
    checksum = tus.read_checksum(given.upload_checksum)
    made = await _create(deps, caller, new)
    headers = {"Location": f"{BASE}/{made.id}"}
    if body_bytes != 0 and made.state is UploadState.OPEN:
        patch = Patch(offset=0, body_bytes=body_bytes, checksum=checksum)
        made = await receive(deps, writers, caller, made.id, patch, request)
    return Response(status_code=201, headers=headers | _progress_headers(made))


@router.head("/{upload_id}", summary="Ask for the offset", **tus_route(Scope.READ))
async def get_offset(upload_id: UploadId, caller: CurrentCaller, deps: DepsParam) -> Response:
    """How many bytes are stored; go on from there."""
    found = await recover(deps, await _find(deps, caller, upload_id))
    headers = _progress_headers(found)
    if found.metadata:
        headers["Upload-Metadata"] = found.metadata
    if found.length is None:
        headers["Upload-Defer-Length"] = "1"
    else:
        headers["Upload-Length"] = str(found.length)
    if found.kind is UploadKind.PARTIAL:
        headers["Upload-Concat"] = "partial"
    if found.kind is UploadKind.FINAL:
        headers["Upload-Concat"] = "final;" + " ".join(f"{BASE}/{part}" for part in found.parts)
        if found.state is UploadState.ASSEMBLING:
            del headers["Upload-Offset"]
    return Response(status_code=200, headers=headers)


@router.patch("/{upload_id}", status_code=204, summary="Send bytes", **tus_route(Scope.WRITE))
async def send_bytes(
    request: Request,
    upload_id: UploadId,
    caller: CurrentCaller,
    deps: DepsParam,
    writers: WritersParam,
    given: Annotated[PatchHeaders, Header()],
) -> Response:
    """The body goes where the stored bytes end. Bytes that arrive before a cut are kept."""
    _check_content_type(given.content_type)
    length = given.upload_length
    patch = Patch(
        offset=tus.read_number("Upload-Offset", given.upload_offset),
        body_bytes=_body_bytes(request),
        checksum=tus.read_checksum(given.upload_checksum),
        length=None if length is None else tus.read_number("Upload-Length", length),
    )
    done = await receive(deps, writers, caller, upload_id, patch, request)
    return Response(status_code=204, headers=_progress_headers(done))


@router.delete("/{upload_id}", status_code=204, summary="Delete an upload", **tus_route(Scope.WRITE))
async def delete_upload(upload_id: UploadId, caller: CurrentCaller, deps: DepsParam) -> Response:
    """Also ends a request that sends bytes to it."""
    async with deps.db.tx(actor=caller.actor) as tx:
        ended = await end.terminate(tx, caller, upload_id)
    await end.delete_bytes(deps, ended)
    return Response(status_code=204)


@router.get("", summary="List unfinished uploads", **requires(Scope.READ))
async def list_uploads(
    caller: CurrentCaller,
    deps: DepsParam,
    limit: Annotated[int, Query(ge=1, le=100)] = 100,
    after: Annotated[str, Query(max_length=64, description="`next` of the page before.")] = "",
) -> UploadPage:
    """Your own, in the order of their ids."""
    async with deps.db.read() as tx:
        found = await store.list_open(tx, caller, after=after, limit=limit + 1)
    return UploadPage(
        items=list(map(upload_view, found[:limit])), next=found[limit - 1].id if len(found) > limit else None
    )


@router.get("/{upload_id}", summary="Show an upload", **requires(Scope.READ))
async def get_upload(upload_id: UploadId, caller: CurrentCaller, deps: DepsParam) -> UploadView:
    """Its state, and how many bytes are stored."""
    return upload_view(await recover(deps, await _find(deps, caller, upload_id)))


async def _find(deps: Deps, caller: Caller, upload_id: str) -> Upload:
    if not tus.UPLOAD_ID.fullmatch(upload_id):
        raise UploadNotFound(upload_id=upload_id)
    async with deps.db.read() as tx:
        return await store.get_upload(tx, caller, upload_id)


async def _create(deps: Deps, caller: Caller, new: NewUpload) -> Upload:
    upload_id = create.new_upload_id()
    if new.kind is UploadKind.FINAL:
        async with deps.db.tx(actor=caller.actor) as tx:
            return await create.create_final(tx, deps, caller, new, upload_id)
    async with deps.db.read() as tx:
        await create.check_open_uploads(tx, deps, caller)
    max_bytes = deps.config.max_bytes if new.length is None else new.length
    staged = await deps.staging.begin(blob_key(upload_id), max_bytes=max_bytes, content_type=new.filetype or None)
    try:
        async with deps.db.tx(actor=caller.actor) as tx:
            made = await create.create(tx, deps, caller, new, staged, upload_id)
    except PenstockError:
        await deps.staging.discard(staged)
        raise
    return await recover(deps, made) if made.length == 0 else made


def _read_length(given: CreationHeaders, kind: UploadKind) -> int | None:
    length, deferred = given.upload_length, given.upload_defer_length
    if kind is UploadKind.FINAL:
        if length is not None or deferred is not None:
            raise BadTusHeader(header="Upload-Length", reason="a final upload has the length of its parts")
        return None
    if deferred is not None:
        if length is not None:
            raise BadTusHeader(header="Upload-Defer-Length", reason="it cannot be sent with Upload-Length")
        if deferred != "1":
            raise BadTusHeader(header="Upload-Defer-Length", reason="expected 1")
        return None
    return tus.read_number("Upload-Length", length)


def _check_content_type(given: str | None) -> None:
    if given is None or given.partition(";")[0].strip().lower() != tus.OFFSET_STREAM:
        raise WrongContentType


def _body_bytes(request: Request) -> int | None:
    """The announced size of the body; None if it is chunked."""
    if "transfer-encoding" in request.headers:
        return None
    given = request.headers.get("content-length", "0")
    return int(given) if given.isdigit() else 0


def _progress_headers(upload: Upload) -> dict[str, str]:
    headers = {"Upload-Offset": str(upload.offset)}
    if upload.state is UploadState.OPEN:
        headers["Upload-Expires"] = tus.http_date(upload.expires_at)
    return headers


RESPONSE_HEADERS: Mapping[str, tuple[tuple[bytes, bytes], ...]] = {BASE: HEADERS}
