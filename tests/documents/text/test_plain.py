"""Plain text, markdown and csv."""

from pathlib import Path

import psutil
import pytest

from penstock.documents.blocks import PageBreak
from penstock.documents.errors import DocumentTooLarge
from penstock.documents.kinds import Kind
from penstock.documents.text.batches import ReadBatch, read_batch
from penstock.documents.text.csv_tables import read_csv
from penstock.documents.text.document import read_batches
from penstock.documents.text.plain import read_plain
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.sandbox.limits import SandboxLimits
from tests.documents.office_files import cells, read_here, read_in_sandbox

CODECS = ["utf-8", "utf-8-sig", "utf-16", "gb18030"]


class TestText:
    def test_it_is_left_as_it_is(self, tmp_path):
        text = "# 标题\n\n- a\n\n| x | y |\n|---|---|\n| 1 | <b>2</b> |\n\n    code"
        (tmp_path / "a.md").write_text(text)
        (page,) = read_here(tmp_path / "a.md")
        assert page.markdown == text
        assert page.spans[0].text == "# 标题"

    @pytest.mark.parametrize("codec", [*CODECS, "cp1252"])
    def test_its_encoding_is_detected(self, codec, tmp_path):
        text = "Größe: café\nnächste Zeile" if codec == "cp1252" else "尺寸：很大\n下一行"
        (tmp_path / "a.txt").write_bytes(text.encode(codec))
        assert read_here(tmp_path / "a.txt")[0].markdown == text

    def test_characters_beyond_ascii_may_come_late(self, tmp_path):
        (tmp_path / "a.txt").write_bytes(b"plain line\n" * 10_000 + "中文在后面".encode("gb18030"))
        assert read_here(tmp_path / "a.txt")[-1].markdown.endswith("中文在后面")

    def test_only_page_markers_are_escaped(self, tmp_path):
        (tmp_path / "a.md").write_text("<!-- a note -->\n<!-- page 3 -->")
        assert read_here(tmp_path / "a.md")[0].markdown == "<!-- a note -->\n\\<!-- page 3 -->"

    @pytest.mark.parametrize("codec", CODECS)
    def test_a_long_one_is_cut_between_lines_and_can_be_entered_at_each_page(self, codec, tmp_path):
        path = tmp_path / "a.txt"
        path.write_bytes("".join(f"第 {number} 行 of text\r\n" for number in range(5000)).encode(codec))
        pages = read_here(path)
        assert [span.text for page in pages for span in page.spans] == [f"第 {n} 行 of text" for n in range(5000)]
        assert list(_from_every_page(path, read_plain, "txt", pages))

    def test_a_line_without_an_end_is_cut(self, tmp_path):
        (tmp_path / "a.txt").write_text("x" * 100_000)
        pages = read_here(tmp_path / "a.txt")
        assert "".join(page.markdown for page in pages) == "x" * 100_000
        assert len(pages) > 5

    def test_blank_text_is_one_blank_page(self, tmp_path):
        (tmp_path / "a.txt").write_text("\n \n")
        assert [(page.number, page.spans) for page in read_here(tmp_path / "a.txt")] == [(1, ())]


class TestCsv:
    @pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
    @pytest.mark.parametrize("codec", CODECS)
    def test_it_becomes_a_table_whatever_its_dialect(self, separator, codec, tmp_path):
        rows: tuple[list[str], ...] = (
            ["名称", "数量", "note"],
            ["苹果", "3", '"a|b, ""c""; d"'],
            [],
            ["梨", "4", '"two\nlines"'],
        )
        (tmp_path / "a.csv").write_bytes("\r\n".join(separator.join(row) for row in rows).encode(codec))
        (page,) = read_here(tmp_path / "a.csv")
        assert page.markdown == (
            '| 名称 | 数量 | note |\n| --- | --- | --- |\n| 苹果 | 3 | a\\|b, "c"; d |\n| 梨 | 4 | two<br>lines |'
        )
        assert cells(page)[1, 2] == 'a|b, "c"; d'

    def test_one_column_is_a_table_too(self, tmp_path):
        (tmp_path / "a.csv").write_text("name\napple\n")
        assert read_here(tmp_path / "a.csv")[0].markdown == "| name |\n| --- |\n| apple |"

    def test_rows_of_different_length_are_filled_up(self, tmp_path):
        (tmp_path / "a.csv").write_text("a,b\n1,2,3\n4\n")
        assert (
            read_here(tmp_path / "a.csv")[0].markdown == "| a | b |  |\n| --- | --- | --- |\n| 1 | 2 | 3 |\n| 4 |  |  |"
        )

    @pytest.mark.parametrize("codec", CODECS)
    def test_a_long_one_can_be_entered_at_each_page(self, codec, tmp_path):
        path = tmp_path / "a.csv"
        path.write_bytes("".join(f'{number},"行\r\n{number}"\r\n' for number in range(1001)).encode(codec))
        pages = read_here(path)
        assert len(pages) == 5
        assert list(_from_every_page(path, read_csv, "csv", pages))

    @pytest.mark.asyncio(loop_scope="module")
    async def test_a_hundred_thousand_rows_are_read_in_little_memory(self, sandbox: Sandbox, tmp_path: Path):
        path = tmp_path / "a.csv"
        with path.open("w") as file:
            file.write("id,名称,price,note\n")
            file.writelines(f'{number},产品 {number},1.5,"some, note"\n' for number in range(100_000))
        little = SandboxLimits(
            memory_bytes=64 * 1024 * 1024, cpu_seconds=30, seconds=100, result_bytes=12 * 1024 * 1024
        )
        ids: list[int] = []
        sizes: list[int] = []
        async with sandbox.session(path) as session:
            async for batch in read_batches(session, Kind.CSV, path.name, limits=little):
                ids += [int(span.text) for page in batch.pages for span in page.spans if span.row and not span.column]
                sizes.append(psutil.Process().memory_info().rss)
        assert ids == list(range(100_000))
        assert len(sizes) > 4
        assert max(sizes[1:]) - sizes[0] < 64 * 1024 * 1024

    @pytest.mark.parametrize(
        "content",
        ["a,b\n1," + "x" * 1_500_000, 'a,b\n1,"' + "x\n" * 1_000_000, "a" * 5_000_000, "," * 20_000 + "\n"],
    )
    @pytest.mark.asyncio(loop_scope="module")
    async def test_giant_fields_lines_and_rows_are_refused(self, sandbox: Sandbox, content, tmp_path: Path):
        (tmp_path / "a.csv").write_text(content)
        with pytest.raises(DocumentTooLarge) as caught:
            await read_in_sandbox(sandbox, tmp_path / "a.csv")
        assert caught.value.hint

    @pytest.mark.asyncio(loop_scope="module")
    async def test_one_wide_row_does_not_widen_all_pages(self, sandbox: Sandbox, tmp_path: Path):
        (tmp_path / "a.csv").write_text("a,b\n" + "1,2\n" * 5000 + ",".join("x" * 10_000) + "\n" + "1,2\n" * 5000)
        pages = await read_in_sandbox(sandbox, tmp_path / "a.csv")
        assert max(len(page.markdown) for page in pages) < 1_000_000

    @pytest.mark.asyncio(loop_scope="module")
    async def test_a_wide_head_makes_short_pages(self, sandbox: Sandbox, tmp_path: Path):
        (tmp_path / "a.csv").write_text("x," * 10_000 + "\n" + "1,2\n" * 200)
        pages = await read_in_sandbox(sandbox, tmp_path / "a.csv")
        assert max(len(page.markdown) for page in pages) < 1_000_000


def _from_every_page(path: Path, reader, kind: str, pages):
    """Check that reading from each cursor gives the same pages as reading from the start."""
    with path.open("rb") as file:
        resumes = [block.resume for block in reader(file, "") if isinstance(block, PageBreak)]
    for at, resume in enumerate(resumes, start=1):
        with path.open("rb") as file:
            batch = read_batch(file, kind, at + 1, resume)
        assert isinstance(batch, ReadBatch)
        assert list(batch.pages) == pages[at:]
        yield at
