"""Labels in other languages: a schema in English is often filled from a form in German or Chinese.

The labels of one line mean the same on a form. They are added to the description of a property, which ranks below its
title and name as a label; so a wrong translation can at worst make two labels ambiguous, and then nothing is decided.
"""

from typing import Any

from penstock.documents.extract.fields.label_keys import schema_label_keys
from penstock.kernel.json_object import JsonObject

MAX_SCHEMAS = 20_000

TRANSLATIONS = """
    invoice number, invoice no, Rechnungsnummer, Rechnungsnr, Rechnung Nr, 发票号码, 发票号
    invoice date, date of issue, Rechnungsdatum, 开票日期, 发票日期
    due date, payment due, Fällig am, Fälligkeitsdatum, Zahlbar bis, 到期日, 到期日期, 付款期限
    customer number, customer no, client number, Kundennummer, Kundennr, Kunden Nr, 客户编号, 客户号
    order number, order no, Bestellnummer, Bestellnr, Auftragsnummer, Auftragsnr, 订单号, 订单编号
    order date, Bestelldatum, Auftragsdatum, 订单日期, 下单日期
    delivery date, Lieferdatum, Liefertermin, 交货日期, 送货日期, 发货日期
    contract number, Vertragsnummer, Vertragsnr, 合同编号, 合同号
    policy number, policy no, Policennummer, Versicherungsnummer, Versicherungsschein Nr, 保单号, 保单号码
    reference, reference number, our reference, Aktenzeichen, Unser Zeichen, Referenz, 参考号, 编号
    date, Datum, 日期
    subtotal, net amount, net total, Zwischensumme, Nettobetrag, Netto, Summe netto, 不含税金额, 小计
    vat, tax, vat amount, tax amount, MwSt, USt, Mehrwertsteuer, Umsatzsteuer, Steuerbetrag, 税额, 增值税
    vat rate, tax rate, Steuersatz, MwSt-Satz, 税率
    total, grand total, total amount, Gesamtbetrag, Gesamtsumme, Rechnungsbetrag, Endbetrag, 价税合计, 总计, 总金额
    amount due, balance due, Zahlbetrag, zu zahlen, Offener Betrag, 应付金额
    amount, Betrag, 金额
    quantity, Menge, Anzahl, 数量
    unit, Einheit, 单位
    unit price, Einzelpreis, Stückpreis, 单价
    price, Preis, 价格
    discount, Rabatt, Nachlass, 折扣, 优惠
    currency, Währung, 币种, 货币
    description, item, Bezeichnung, Beschreibung, Artikel, 货物名称, 品名, 商品名称, 项目名称
    name, Name, 姓名, 名称
    first name, given name, Vorname, 名
    last name, surname, family name, Nachname, Familienname, 姓
    date of birth, birth date, Geburtsdatum, geboren am, 出生日期
    sex, gender, Geschlecht, 性别
    age, Alter, 年龄
    nationality, Staatsangehörigkeit, Nationalität, 国籍
    address, Adresse, Anschrift, 地址, 住址
    city, town, Ort, Stadt, 城市
    postal code, zip code, postcode, Postleitzahl, PLZ, 邮编, 邮政编码
    country, Land, 国家
    phone, telephone, phone number, Telefon, Telefonnummer, 电话, 联系电话, 电话号码
    mobile, Mobil, Handy, 手机, 手机号
    email, e-mail, e-mail address, E-Mail-Adresse, 邮箱, 电子邮箱
    seller, vendor, supplier, Verkäufer, Lieferant, Anbieter, 销售方, 卖方, 供应商, 供货方
    buyer, customer, purchaser, client, Käufer, Kunde, Auftraggeber, 购买方, 买方, 客户, 采购方
    tax number, tax id, vat id, vat number, Steuernummer, USt-IdNr, USt-ID, 纳税人识别号, 税号, 统一社会信用代码
    bank, bank name, Kreditinstitut, 开户行, 开户银行
    account number, account no, Kontonummer, Kontonr, 账号, 银行账号
    patient, patient name, Patientin, 患者, 患者姓名
    physician, doctor, attending physician, Arzt, Ärztin, behandelnder Arzt, 医生, 医师, 主治医生
    diagnosis, Diagnose, 诊断
    result, value, Ergebnis, Wert, Messwert, 结果
    employer, company, Arbeitgeber, Firma, 公司, 雇主
    employee, employee name, Arbeitnehmer, Mitarbeiter, 员工, 员工姓名
    employee number, personnel number, Personalnummer, 工号, 员工编号
    department, Abteilung, 部门
    position, job title, Stelle, Funktion, 职位, 岗位
    salary, gross pay, gross salary, Bruttolohn, Bruttogehalt, 应发工资, 工资
    net pay, net salary, Nettolohn, Auszahlungsbetrag, 实发工资
    start date, begin, effective date, Beginn, Vertragsbeginn, 开始日期, 生效日期
    end date, expiry date, Ende, Vertragsende, 结束日期, 到期时间
    contact, contact person, Ansprechpartner, 联系人
    cashier, Kassierer, Es bediente Sie, 收银员
    weight, Gewicht, 重量
    remarks, notes, comments, Bemerkung, Anmerkung, 备注
"""


def with_translated_labels(schema: Any) -> Any:
    """A copy of a schema whose properties have the translations of their labels in the description."""
    translations = _translations()
    seen = 0

    def translate(part: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen > MAX_SCHEMAS or not isinstance(part, dict | list):
            return part
        if isinstance(part, list):
            return [translate(inner) for inner in part]
        copied = {word: translate(inner) for word, inner in part.items()}
        properties = copied.get("properties")
        if isinstance(properties, dict):
            copied["properties"] = {
                name: _with_description(name, inner, translations) for name, inner in properties.items()
            }
        return copied

    return translate(schema)


def _with_description(name: str, schema: Any, translations: dict[str, str]) -> Any:
    if not isinstance(schema, dict):
        return schema
    title, description = schema.get("title"), schema.get("description")
    names = [name, *([title] if isinstance(title, str) else [])]
    words = {translations[key] for each in names for key in schema_label_keys(each) if key in translations}
    if not words:
        return schema
    described: JsonObject = {
        **schema,
        "description": ", ".join([*([description] if isinstance(description, str) else []), *words]),
    }
    return described


def _translations() -> dict[str, str]:
    lines = [line.strip() for line in TRANSLATIONS.strip().splitlines()]
    return {key: line for line in lines for word in line.split(",") for key in schema_label_keys(word)}
