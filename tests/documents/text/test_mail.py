"""Mail messages: what is read, and hostile messages."""

from email.message import EmailMessage
from pathlib import Path

import pytest

from penstock.documents.errors import DocumentTooLarge, DocumentUnreadable
from penstock.kernel.sandbox.call import Sandbox
from tests.documents.office_files import read_here, read_in_sandbox


def letter(**headers: str) -> EmailMessage:
    message = EmailMessage()
    for name, written in {"From": "王芳 <wang@x.cn>", "To": "b@x.cn", "Subject": "主题 one", **headers}.items():
        message[name] = written
    return message


def saved(path: Path, message: EmailMessage) -> Path:
    path.write_bytes(bytes(message))
    return path


def test_headers_text_and_attachments(tmp_path):
    message = letter(Date="Mon, 02 Feb 2026 10:00:00 +0800", Cc="c@x.cn")
    message.set_content("你好，\n第二行\n")
    message.add_alternative("<p>web page</p>", subtype="html")
    message.add_attachment(b"12345", maintype="application", subtype="pdf", filename="报告.pdf")
    (page,) = read_here(saved(tmp_path / "a.eml", message))
    assert page.markdown == (
        "# 主题 one\n\nFrom: 王芳 <wang@x.cn>\nTo: b@x.cn\nCc: c@x.cn\nDate: Mon, 02 Feb 2026 10:00:00 +0800\n"
        "Subject: 主题 one\n\n你好，\n第二行\n\n## Attachments\n\n- 报告.pdf (5 bytes)"
    )
    assert "From: 王芳 <wang@x.cn>" in [span.text for span in page.spans]


def test_a_mail_without_text_is_read_from_its_web_page(tmp_path):
    message = letter()
    message.set_content(
        "<h2>报价</h2><script>x()</script><table><tr><td>单价</td><td>5</td></tr></table>", subtype="html"
    )
    markdown = read_here(saved(tmp_path / "a.eml", message))[0].markdown
    assert markdown.endswith("## 报价\n\n| 单价 | 5 |\n| --- | --- |")


def test_a_mail_in_a_mail_is_an_attachment(tmp_path):
    message = letter()
    message.set_content("see below")
    message.add_attachment(letter(Subject="the other"))
    assert "- message/rfc822 (" in read_here(saved(tmp_path / "a.eml", message))[0].markdown


@pytest.mark.parametrize("charset", ["gb2312", "gbk", "big5", "no-such-charset"])
def test_text_is_decoded_as_declared_or_else_as_detected(charset, tmp_path):
    text = "中文內容測試" if charset == "big5" else "中文内容测试"
    body = text.encode("big5" if charset == "big5" else "gb18030")
    head = (
        f"From: a@x\nTo: b@x\nSubject: s\nContent-Type: text/plain; charset={charset}\nContent-Transfer-Encoding: 8bit"
    )
    (tmp_path / "a.eml").write_bytes(head.encode() + b"\n\n" + body)
    assert read_here(tmp_path / "a.eml")[0].markdown.endswith(text)


@pytest.mark.parametrize(
    "subject",
    [
        "=?utf-8?b?!!!?=",
        "=?no-such?q?abc?=",
        "=?utf-8?q?" + "=" * 5000 + "?=",
        "\udcff\udcfe",
        "(" * 20_000,
        "a" * 200_000,
    ],
)
def test_broken_headers_are_shown_as_they_are(subject, tmp_path):
    source = f"From: a@x\nTo: b@x\nSubject: {subject}\n\nthe text".encode(errors="surrogateescape")
    (tmp_path / "a.eml").write_bytes(source)
    assert "the text" in read_here(tmp_path / "a.eml")[-1].markdown


@pytest.mark.asyncio(loop_scope="module")
class TestHostile:
    async def test_thousands_of_nested_parts_are_refused(self, sandbox: Sandbox, tmp_path: Path):
        parts = [f'Content-Type: multipart/mixed; boundary="{number}"\n\n--{number}' for number in range(3000)]
        (tmp_path / "a.eml").write_text("From: a@x\nTo: b@x\nSubject: s\n" + "\n".join(parts) + "\n\ntext")
        with pytest.raises((DocumentUnreadable, DocumentTooLarge)) as caught:
            await read_in_sandbox(sandbox, tmp_path / "a.eml")
        assert caught.value.hint

    async def test_nesting_within_the_limits_of_the_parser_is_refused_too(self, sandbox: Sandbox, tmp_path: Path):
        parts = [f'Content-Type: multipart/mixed; boundary="{number}"\n\n--{number}' for number in range(40)]
        (tmp_path / "a.eml").write_text("From: a@x\nTo: b@x\nSubject: s\n" + "\n".join(parts) + "\n\ntext")
        with pytest.raises(DocumentUnreadable, match="deep"):
            await read_in_sandbox(sandbox, tmp_path / "a.eml")

    async def test_thousands_of_attachments_are_refused(self, sandbox: Sandbox, tmp_path: Path):
        one = "--x\nContent-Type: application/zip\nContent-Disposition: attachment; filename=a.zip\n\nAAAA\n"
        head = "From: a@x\nTo: b@x\nSubject: s\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=x\n\n"
        (tmp_path / "a.eml").write_text(head + one * 5000 + "--x--\n")
        with pytest.raises(DocumentTooLarge, match="attachments"):
            await read_in_sandbox(sandbox, tmp_path / "a.eml")

    async def test_a_text_called_mail_is_unreadable(self, sandbox: Sandbox, tmp_path: Path):
        (tmp_path / "a.eml").write_text("just some words\n")
        with pytest.raises(DocumentUnreadable, match="headers"):
            await read_in_sandbox(sandbox, tmp_path / "a.eml")
