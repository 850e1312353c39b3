"""Malicious and damaged office files. Each is rejected with an error of the file, and the sandbox survives."""

import struct
import zipfile
from pathlib import Path

import pytest

from penstock.documents.errors import (
    DocumentEncrypted,
    DocumentReaderKilled,
    DocumentTookTooLong,
    DocumentTooLarge,
    DocumentUnreadable,
)
from penstock.documents.kinds import Kind
from penstock.documents.pages import Page
from penstock.documents.sandbox_errors import document_errors
from penstock.documents.text.batches import ReadBatch, ReadCursor
from penstock.documents.text.document import BATCH_LIMITS, detect_file_kind, read_batches
from penstock.kernel.errors import PenstockError
from penstock.kernel.sandbox import errors
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.sandbox.limits import SandboxLimits
from penstock.kernel.sandbox.session import SandboxSession
from tests.documents.office_files import (
    entry_at,
    part_of,
    patched,
    read_in_sandbox,
    repack,
    write_report,
    write_slides,
    write_workbook,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

EXTERNAL = b'<!DOCTYPE x [<!ENTITY secret SYSTEM "file:///etc/passwd">]>'
LAUGHS = b'<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>'
REMOTE = b'<!DOCTYPE x SYSTEM "http://127.0.0.1:1/x.dtd">'
WRITERS = {"docx": write_report, "pptx": write_slides, "xlsx": write_workbook}


def with_prolog(content: bytes, prolog: bytes) -> bytes:
    """A part with a prolog between its XML declaration and its root."""
    declaration, end, rest = content.partition(b"?>")
    return declaration + end + prolog + rest if end else prolog + content


async def error_of(sandbox: Sandbox, path: Path) -> PenstockError:
    """The error that reading the file raises."""
    with pytest.raises(PenstockError) as caught:
        await read_in_sandbox(sandbox, path)
    return caught.value


@pytest.mark.parametrize("prolog", [EXTERNAL, LAUGHS, REMOTE])
@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("a.docx", "word/document.xml"),
        ("a.docx", "word/styles.xml"),
        ("a.pptx", "ppt/slides/slide1.xml"),
        ("a.xlsx", "xl/sharedStrings.xml"),
        ("a.xlsx", "xl/worksheets/sheet1.xml"),
    ],
)
async def test_a_document_type_is_refused_and_no_entity_is_read(sandbox, name, part, prolog, tmp_path):
    path = WRITERS[name[2:]](tmp_path / name)
    content = with_prolog(part_of(path, part), prolog).replace(b"Chapter one", b"&secret;")
    error = await error_of(sandbox, repack(path, {part: content}))
    assert isinstance(error, DocumentUnreadable)
    assert "DTD" in str(error)
    assert error.hint


async def test_a_part_that_unpacks_to_far_more_than_its_size_is_refused(sandbox, tmp_path):
    path = repack(write_report(tmp_path / "a.docx"), {"word/media/bomb.xml": bytes(40_000_000)})
    error = await error_of(sandbox, path)
    assert isinstance(error, DocumentTooLarge)
    assert "zip bomb" in str(error)


async def test_a_package_with_a_huge_declared_size_is_not_unpacked(sandbox, tmp_path):
    path = write_workbook(tmp_path / "a.xlsx")
    with patched(path) as content:
        struct.pack_into("<I", content, entry_at(content, "xl/worksheets/sheet1.xml") + 24, 3_000_000_000)
    error = await error_of(sandbox, path)
    assert isinstance(error, DocumentTooLarge)
    assert "3000" in str(error)


async def test_a_part_with_a_wrong_declared_size_is_refused(sandbox, tmp_path):
    path = write_report(tmp_path / "a.docx")
    with patched(path) as content:
        struct.pack_into("<I", content, entry_at(content, "word/document.xml") + 24, 2000)
    assert isinstance(await error_of(sandbox, path), DocumentUnreadable)


async def test_thousands_of_parts_are_refused(sandbox, tmp_path):
    path = write_report(tmp_path / "a.docx")
    with zipfile.ZipFile(path, "a") as package:
        for number in range(10_001):
            package.writestr(f"word/media/{number}.txt", b"")
    error = await error_of(sandbox, path)
    assert isinstance(error, DocumentTooLarge)
    assert "the limit is 10000" in str(error)


async def test_a_password_protected_package_is_refused_as_encrypted(sandbox, tmp_path):
    path = write_report(tmp_path / "a.docx")
    with patched(path) as content:
        content[entry_at(content, "word/document.xml") + 8] |= 1
    assert isinstance(await error_of(sandbox, path), DocumentEncrypted)


@pytest.mark.parametrize("name", ["a.docx", "a.pptx", "a.xlsx"])
async def test_a_truncated_file_is_unreadable(sandbox, name, tmp_path):
    path = WRITERS[name[2:]](tmp_path / name)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert isinstance(await error_of(sandbox, path), DocumentUnreadable)


@pytest.mark.parametrize(
    ("name", "part", "content"),
    [
        ("a.docx", "word/document.xml", b"<document><body><p>"),
        ("a.docx", "word/document.xml", b""),
        ("a.docx", "_rels/.rels", b"<Relationships/>"),
        ("a.pptx", "ppt/presentation.xml", b"<presentation/>"),
        ("a.pptx", "ppt/slides/slide1.xml", b"not xml"),
        ("a.xlsx", "xl/workbook.xml", b"<workbook/>"),
        ("a.xlsx", "xl/worksheets/sheet1.xml", b"<worksheet><sheetData><row><c><v>1</v></row>"),
    ],
)
async def test_broken_parts_are_unreadable(sandbox, name, part, content, tmp_path):
    error = await error_of(sandbox, repack(WRITERS[name[2:]](tmp_path / name), {part: content}))
    assert isinstance(error, DocumentUnreadable)
    assert error.values["filename"] == name


def nested(path: Path, name: bytes) -> Path:
    """A document of 50,000 nested elements."""
    deep = b"<document><body>" + b"<%s>" % name * 50_000 + b"</%s>" % name * 50_000 + b"</body></document>"
    return repack(write_report(path), {"word/document.xml": deep})


@pytest.mark.parametrize("name", [b"sdt", b"ins"])
async def test_deep_nesting_is_refused(sandbox, name, tmp_path):
    error = await error_of(sandbox, nested(tmp_path / "a.docx", name))
    assert isinstance(error, DocumentUnreadable)
    assert "deeper" in str(error)


@pytest.mark.parametrize("name", [b"p", b"tbl", b"r"])
async def test_deep_nesting_without_text_is_an_empty_page(sandbox, name, tmp_path):
    assert [page.markdown for page in await read_in_sandbox(sandbox, nested(tmp_path / "a.docx", name))] == [""]


async def test_a_row_of_too_many_columns_is_refused(sandbox, tmp_path):
    wide = b"<worksheet><sheetData><row>" + b"<c><v>1</v></c>" * 20_000 + b"</row></sheetData></worksheet>"
    path = repack(write_workbook(tmp_path / "a.xlsx"), {"xl/worksheets/sheet1.xml": wide})
    assert isinstance(await error_of(sandbox, path), DocumentTooLarge)


@pytest.mark.parametrize(
    ("ending", "error"),
    [
        (errors.SandboxedFailure(kind="ValueError", text="no"), DocumentUnreadable),
        (errors.SandboxCrashed(how="SIGSEGV"), DocumentUnreadable),
        (errors.SandboxBadAnswer(reason="no"), DocumentUnreadable),
        (errors.SandboxTimedOut(seconds=1), DocumentTookTooLong),
        (errors.SandboxKilled(), DocumentReaderKilled),
        (errors.SandboxOutOfCpu(seconds=1), DocumentTooLarge),
        (errors.SandboxOutOfMemory(memory_bytes=1), DocumentTooLarge),
        (errors.SandboxTooMuch(most_bytes=1), DocumentTooLarge),
        (errors.SandboxLost(reason="gone"), errors.SandboxLost),
    ],
)
async def test_sandbox_failures_become_errors_of_the_file_except_our_own(ending, error):
    with pytest.raises(error) as raised, document_errors("a.docx", "docx", page=3):
        raise ending
    assert raised.value.retryable == (error not in {DocumentUnreadable, DocumentTooLarge})
    assert raised.value.internal_outage == (error is errors.SandboxLost)


@pytest.mark.parametrize(
    ("limits", "error", "reason"),
    [
        (SandboxLimits(memory_bytes=4_000_000), DocumentTooLarge, "memory"),
        (SandboxLimits(seconds=0.05), DocumentTookTooLong, "did not end"),
        (SandboxLimits(result_bytes=1000), DocumentTooLarge, "over 1000 bytes"),
    ],
)
async def test_a_file_over_a_limit_is_refused_and_the_next_one_is_read(sandbox, limits, error, reason, tmp_path):
    greedy, modest = tmp_path / "greedy.html", tmp_path / "modest.txt"
    greedy.write_text("<p>" + "text <b>and</b> more " * 50_000)
    modest.write_text("hello")
    async with sandbox.session(greedy) as session:
        with pytest.raises(error, match=reason):
            [batch async for batch in read_batches(session, Kind.HTML, greedy.name, limits=limits)]
    async with sandbox.session(modest) as session:
        kind = await detect_file_kind(session, modest.name)
        (batch,) = [batch async for batch in read_batches(session, kind, modest.name)]
    assert batch.pages[0].markdown == "hello"


async def test_more_pages_than_allowed_are_too_large(sandbox, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("line of text\n" * 10_000)
    async with sandbox.session(path) as session:
        with pytest.raises(DocumentTooLarge, match="more than 3 pages"):
            [batch async for batch in read_batches(session, Kind.TXT, path.name, max_pages=3)]


class CompromisedSession(SandboxSession):
    """A session whose child process answers with a batch that a malicious file chose."""

    def __init__(self, batch: ReadBatch) -> None:
        self.batch = batch

    async def run(self, *_: object, limits: SandboxLimits = BATCH_LIMITS, **__: object):
        return self.batch


@pytest.mark.parametrize(
    "batch",
    [
        ReadBatch(pages=(), following=ReadCursor(page=1)),
        ReadBatch(pages=(Page(number=7, origin="file", markdown=""),), following=None),
        ReadBatch(pages=(Page(number=1, origin="file", markdown=""),), following=ReadCursor(page=1)),
    ],
)
async def test_a_compromised_child_cannot_keep_us_reading(batch):
    with pytest.raises(DocumentUnreadable, match="out of order"):
        [batch async for batch in read_batches(CompromisedSession(batch), Kind.TXT, "a")]
