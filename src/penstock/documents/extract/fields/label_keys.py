"""Label keys: two labels are the same when their keys are equal.

A key ignores case, spaces, punctuation and width, and letters that OCR confuses (l, I and 1; O and 0), so that "Invoice
No.:", "invoiceNo" and "lNVOICE N0" have the same key. A name of a schema has several keys, since "number" may be
printed as "No.".
"""

import itertools
import re
import unicodedata
from collections.abc import Sequence

from penstock.documents.extract.fields.magnitudes import WORD
from penstock.documents.extract.fields.numbers import CODES

MAX_LABEL = 80  # characters; longer text is prose
MAX_VARIANTS = 32
MAX_RATE = 20  # characters

HAN = r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")
_SEPARATORS = re.compile(r"[/|()\[\]{}（）【】［］<>]")  # between two labels in one
_MAY_CONTAIN_PARTS = re.compile(r"[/|(\[{<%$]|[A-Z]{3}\s*$|[^\x00-\x7f]")
_RATE = r"[@+]?\s*\d{1,3}(?:[.,]\d{1,3})?\s*[%％]"
_BARE_RATE = re.compile(rf"\s*[(（]?\s*{_RATE}\s*[)）]?\s*")
_UNIT_AFTER = re.compile(rf"(?<=\S)(?:\s*{_RATE}|\s+(?:in\s+)?(?:{CODES})|\s*[€$£¥￥])\s*$")
_NOTE = re.compile(r"\s*[(（][^()（）]*[)）]\s*")
_NOTE_AFTER = re.compile(r"(?<=\S)\s*[(（][^()（）]*[)）]\s*$")
_MAGNITUDE = re.compile(rf"{WORD}|[百千万萬亿億]|000|[TKM]€|TEUR")
_NAMES_A_UNIT = re.compile(r"(?<![a-z])(?:rate|per\s?cent|pct|ratio|currency)|率|币|比例", re.IGNORECASE)
_OTHER_SCRIPT = re.compile(rf"(?<=[{HAN}])\s*(?=[^\W\d_{HAN}])|(?<=[^\W\d_{HAN}])[\s.]+(?=[{HAN}])")
_CLAUSE = re.compile(r"[.,;:!?()\"'/|，。；：！？（）“”‘’「」、\n]|\bor\b|\be\.g\.")
_OCR_CONFUSIONS = str.maketrans({"l": "i", "1": "i", "0": "o"})

ARTICLES = frozenset({"the", "a", "an"})
SYNONYMS = (
    ("number", "no", "nr", "num"),
    ("quantity", "qty"),
    ("amount", "amt"),
    ("telephone", "tel", "phone"),
    ("address", "addr"),
    ("reference", "ref"),
    ("account", "acct"),
    ("description", "desc"),
    ("department", "dept"),
    ("identifier", "id"),
    ("percent", "pct"),
)
SYNONYMS_BY_WORD = {word: group for group in SYNONYMS for word in group}
HAN_SYNONYMS = (("号码", "号"), ("编号", "号"))

# Labels that are common on forms: a value ends before them, even if they are not in the schema.
FORM_LABELS = """
    address amount currency customer date description due email fax name no number page phone price qty quantity ref
    reference subtotal tax tel telephone terms total unit vat
    bill_to billed_to ship_to shipped_to sold_to deliver_to invoice_to
    名称 地址 电话 传真 邮箱 日期 开票日期 金额 税额 税率 合计 单价 数量 单位 备注 发票代码 发票号码 校验码 机器编号
    纳税人识别号 统一社会信用代码 开户行 开户行及账号 账号 收款人 复核 开票人 联系人 规格型号
"""

# Parties of a document. The names of one group may mean the same party.
PARTIES = (
    "seller supplier vendor verkäufer lieferant vendeur fournisseur "
    "销售方 销方 销货方 销货单位 卖方 出卖人 供方 供应商 供货方",
    "buyer customer client purchaser bill_to billed_to sold_to invoice_to käufer kunde acheteur "
    "购买方 购方 购货方 购货单位 买方 买受人 需方 采购方 客户",
    "ship_to shipped_to deliver_to delivered_to consignee receiver recipient 收货人 收货方",
    "sender shipper consignor 发货人 发货方",
    "payer payor remitter 付款方 付款人 付款单位",
    "payee beneficiary 收款方 收款单位",
    "tenant lessee 承租方",
    "landlord lessor 出租方",
    "contractor auftragnehmer 受托方",
    "auftraggeber 委托方",
    *("employer", "employee", "borrower", "lender", "licensee", "licensor", "insured", "insurer"),
    *("importer", "exporter", "guarantor", "甲方", "乙方", "丙方"),
)
_PARTY_SUFFIXES = ("", "info", "information", "details", "data", "信息", "资料")
TOTAL_LABELS = (
    "total subtotal sum sumtotal grandtotal amountdue totaldue totals 合计 小计 总计 价税合计 本页小计 总额 共计"
)


def label_key(text: str) -> str:
    """The key of a label in a document; empty for a text that is too long."""
    return _join(_words(text)) if len(text) <= MAX_LABEL else ""


def schema_label_keys(text: str) -> frozenset[str]:
    """All keys that a name of a schema may have in a document."""
    words = _words(split_camel_case(text))
    variants = itertools.product(*(SYNONYMS_BY_WORD.get(word, (word,)) for word in words))
    return frozenset(_join(variant) for variant in itertools.islice(variants, MAX_VARIANTS)) - {""}


def split_camel_case(name: str) -> str:
    """A name such as "invoiceNo" with spaces between its words."""
    return _CAMEL.sub(" ", name)


def parts_of(label: str) -> list[str]:
    """The labels that are combined in one: "Total (EUR)", "Date/日期", "发票号码 Invoice No.". Or the label without the
    rate or currency after it: "VAT 19%" and "Total EUR" are labels, not pairs."""
    if not _MAY_CONTAIN_PARTS.search(label):
        return []
    plain = without_unit(label)
    if plain != label:
        return [plain, *parts_of(plain)]
    parts = [part for part in _SEPARATORS.split(label) if part]
    parts += [piece for part in parts or [label] for piece in _OTHER_SCRIPT.split(part) if piece != part]
    return [part for part in parts if part.strip() and part != label]


def without_unit(label: str) -> str:
    """A label without the rate or currency after it, unless it is the label of a rate or currency."""
    plain = _UNIT_AFTER.sub("", label)
    return label if names_a_unit(plain) else plain


def is_rate(text: str) -> bool:
    """Whether a text is only a percentage."""
    return len(text) <= MAX_RATE and _BARE_RATE.fullmatch(text) is not None


def names_a_unit(label: str) -> bool:
    """Whether a label is that of a percentage or a currency."""
    return _NAMES_A_UNIT.search(label) is not None


def without_note(label: str) -> str:
    """A label without the note in brackets after it: "VAT (20%)", "Shipping (2 kg)". A magnitude stays, since it
    multiplies the value."""
    note = _NOTE_AFTER.search(label)
    return label if note is None or _MAGNITUDE.search(note[0]) else label[: note.start()]


def is_note(text: str) -> bool:
    """Whether a whole text is in brackets. After a label it is a note, not a negative amount."""
    return _NOTE.fullmatch(text) is not None


def clauses_of(description: str) -> list[str]:
    """The clauses of a description, each of which may be a label as a whole."""
    return [clause for clause in _CLAUSE.split(description[:2000]) if clause.strip() and len(clause) <= MAX_LABEL]


def form_label_keys() -> frozenset[str]:
    """The keys of labels that are common on forms."""
    return frozenset(key for word in FORM_LABELS.split() for key in schema_label_keys(word))


def party_label_keys() -> dict[str, int]:
    """The keys of parties, each with its group. A value of one group is never a value of another."""
    return {
        key + label_key(after): party
        for party, names in enumerate(PARTIES)
        for name in names.split()
        for key in schema_label_keys(name)
        for after in _PARTY_SUFFIXES
    }


def total_label_keys() -> frozenset[str]:
    """The keys of the labels of totals."""
    return frozenset(label_key(word) for word in TOTAL_LABELS.split())


def _words(text: str) -> list[str]:
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    words = _WORD.findall(plain.replace("#", " no ").casefold())
    return _reorder_of([word for word in words if word not in ARTICLES] or words)


def _reorder_of(words: list[str]) -> list[str]:
    """Reorder "date of invoice" to "invoice date"."""
    if words.count("of") != 1 or words[0] == "of" or words[-1] == "of":
        return words
    cut = words.index("of")
    return words[cut + 1 :] + words[:cut]


def _join(words: Sequence[str]) -> str:
    key = "".join(words)
    if key.isascii():
        return key.translate(_OCR_CONFUSIONS)
    for long, short in HAN_SYNONYMS:
        key = key.replace(long, short)
    return key.translate(_OCR_CONFUSIONS)
