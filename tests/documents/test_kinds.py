"""Detection of the kind of a file and of its encoding."""

import zipfile
from pathlib import Path

import pytest

from penstock.documents.errors import DocumentEmpty, DocumentEncrypted, DocumentKindUnknown
from penstock.documents.kinds import IMAGES, TEXT_KINDS, Kind, detect_kind
from penstock.documents.text.document import detect_file_kind
from penstock.documents.text.encoding import detect_encoding
from penstock.kernel.sandbox.call import Sandbox
from tests.documents.office_files import write_report, write_slides, write_workbook

OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"%PDF-1.7\n", Kind.PDF),
        (b"\0\0junk before it\n%PDF-1.4\n", Kind.PDF),
        (b"\x89PNG\r\n\x1a\n\0\0", Kind.PNG),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", Kind.JPEG),
        (b"II*\0\x08\0", Kind.TIFF),
        (b"MM\0*\0\0", Kind.TIFF),
        (b"RIFF\x10\0\0\0WEBPVP8 ", Kind.WEBP),
        (b"<!DOCTYPE html><title>x</title>", Kind.HTML),
        (b"\xef\xbb\xbf<!-- made by hand -->\n<html lang='zh'>", Kind.HTML),
        (b"Received: by x\r\n (a b)\r\nFrom: a@x\r\nDate: today\r\nTo: b@x\r\n\r\nhello", Kind.EML),
    ],
)
@pytest.mark.parametrize("name", ["as.docx", "as.txt", "as", "as.pdf"])
def test_content_decides_before_the_name(head, kind, name):
    assert detect_kind(head, name) is kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.CSV", Kind.CSV),
        ("a.tsv", Kind.CSV),
        ("a.md", Kind.MD),
        ("a.txt", Kind.TXT),
        ("a.htm", Kind.HTML),
        ("a.eml", Kind.EML),
        ("a.log", Kind.TXT),
        ("a", Kind.TXT),
        ("a.docx", Kind.TXT),
        ("a.pdf", Kind.TXT),
    ],
)
def test_the_name_decides_between_kinds_of_text(name, kind):
    assert detect_kind("名称,数量\n苹果,3\n".encode(), name) is kind


def test_a_text_about_pdf_is_a_text():
    assert detect_kind(b"A PDF begins with %PDF-1.7, and a mail with\nFrom: someone\n", "notes.md") is Kind.MD


@pytest.mark.parametrize(
    ("head", "seen"),
    [
        (b"{\\rtf1 x}", "RTF"),
        (b"%!PS-Adobe", "PostScript"),
        (b"\x1f\x8b\x08\0\0", "gzip"),
        (b"GIF89a\0\0", "GIF"),
        (b"text and then\0a zero", "binary data"),
        (bytes(range(256)), "binary data"),
        (OLD_OFFICE + bytes(600), "an Office file from before 2007"),
    ],
)
def test_an_unsupported_format_is_named(head, seen):
    with pytest.raises(DocumentKindUnknown) as caught:
        detect_kind(head, "a.txt")
    assert caught.value.values["seen"] == seen


def test_no_bytes_are_empty():
    with pytest.raises(DocumentEmpty):
        detect_kind(b"", "a.pdf")


def test_every_kind_has_a_reader():
    assert IMAGES | TEXT_KINDS | {Kind.PDF} == set(Kind)
    assert not IMAGES & TEXT_KINDS


@pytest.mark.parametrize(
    ("text", "codec"),
    [
        ("plain", "utf-8"),
        ("汉字 und Ümläute", "utf-8"),
        ("汉字", "utf-8-sig"),
        ("汉字", "utf-16"),
        ("a", "utf-16"),
        ("中华人民共和国，你好。", "gb18030"),
        ("name;数量\n苹果;3\n" * 50, "gb18030"),
        ("Crème brûlée für 5 €", "cp1252"),
    ],
)
def test_the_encoding_of_a_text_is_detected(text, codec):
    assert detect_encoding(text.encode(codec)) == codec


def test_a_sample_may_end_inside_a_character():
    assert detect_encoding("汉字".encode()[:-1]) == "utf-8"
    assert detect_encoding("这是一段用来测试的文字".encode("gb18030")[:-1]) == "gb18030"


async def kind_in(sandbox: Sandbox, path: Path) -> Kind:
    async with sandbox.session(path) as session:
        return await detect_file_kind(session, path.name)


@pytest.mark.asyncio(loop_scope="module")
class TestInTheSandbox:
    async def test_office_files_are_told_apart_by_their_entries(self, sandbox, tmp_path):
        for write, kind in ((write_report, Kind.DOCX), (write_slides, Kind.PPTX), (write_workbook, Kind.XLSX)):
            path = write(tmp_path / "misnamed.pdf")
            assert await kind_in(sandbox, path) is kind

    async def test_another_archive_is_refused_even_if_named_as_an_office_file(self, sandbox, tmp_path):
        path = tmp_path / "a.docx"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("readme.txt", "hello")
        with pytest.raises(DocumentKindUnknown) as caught:
            await kind_in(sandbox, path)
        assert caught.value.values["seen"] == "a zip archive"

    async def test_an_office_file_with_a_password_is_encrypted(self, sandbox, tmp_path):
        path = write_locked(tmp_path / "a.docx")
        with pytest.raises(DocumentEncrypted):
            await kind_in(sandbox, path)

    async def test_no_bytes_are_an_empty_document(self, sandbox, tmp_path):
        path = tmp_path / "a.docx"
        path.touch()
        with pytest.raises(DocumentEmpty):
            await kind_in(sandbox, path)


def write_locked(path: Path) -> Path:
    """An OLE container as office programs write it for a password-protected file. Its directory is in sector 200."""
    header = bytearray(OLD_OFFICE.ljust(512, b"\0"))
    header[30:32] = (9).to_bytes(2, "little")
    header[48:52] = (200).to_bytes(4, "little")
    streams = b"".join(name.encode("utf-16-le").ljust(128, b"\0") for name in ("Root Entry", "EncryptedPackage"))
    path.write_bytes(bytes(header) + b"\1" * 512 * 200 + streams)
    return path
