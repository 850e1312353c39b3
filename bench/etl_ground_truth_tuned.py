"""Training documents, on which grounding was tuned: invoices, letters, contracts, laboratory reports, receipts, CVs."""

from collections.abc import Iterator
from datetime import timedelta

from bench.etl_ground_truth import Beside, Block, Draft, Facts, Kind, Pairs, Rows, Text, documents_of
from bench.etl_ground_truth_values import (
    CURRENCIES,
    FIRMS,
    GOODS,
    PEOPLE,
    STREETS,
    TOWNS,
    ValueWriter,
    array,
    choice,
    day,
    month_name,
    number,
    record,
    text,
    truth,
)

INVOICE = {
    "en": "INVOICE|Invoice No.|Invoice date|Due date|Customer No.|Bill to|Ship to|Pos|Description|Qty|Unit price|"
    "Amount|Subtotal|VAT|Total|Payment within {days} days of the invoice date.|Currency",
    "de": "RECHNUNG|Rechnungsnummer|Rechnungsdatum|Fällig am|Kundennummer|Rechnungsadresse|Lieferadresse|Pos.|"
    "Bezeichnung|Menge|Einzelpreis|Betrag|Zwischensumme|MwSt.|Gesamtbetrag|Zahlbar innerhalb von {days} Tagen.|Währung",
    "zh": "销售发票|发票号码|开票日期|到期日期|客户编号|购买方|收货方|序号|货物名称|数量|单价|金额|不含税金额|税额|"
    "价税合计|请在{days}天内付款。|币种",
}


def invoice(pen: ValueWriter) -> Draft:
    """Head, two addresses, a table, sums."""
    words = INVOICE[pen.tongue].split("|")
    is_named = pen.dice.random() < (0.0 if pen.tongue == "en" else 0.6)
    called = (lambda at: words[at]) if is_named else (lambda at: "")  # noqa: ARG005  (the same form for both)
    issued, days = pen.day(), pen.dice.choice([14, 30, 45])
    due = issued + timedelta(days=days)
    code, customer = pen.code("@@-2####"), pen.code("#####")
    buyer, other = pen.some(FIRMS, 2)
    street, town = pen.one(STREETS), pen.one(TOWNS)
    goods = pen.some(GOODS, pen.dice.randint(2, 5))
    rows = [(name, pen.dice.randint(1, 40), pen.amount(1, 900)) for name in goods]
    net = round(sum(count * price for _, count, price in rows), 2)
    tax = round(net * 0.19, 2)
    currency = {"en": pen.dice.choice(["USD", "GBP", "EUR"]), "de": "EUR", "zh": "CNY"}[pen.tongue]
    head = (
        (words[1], code), (words[2], pen.printed(issued)), (words[3], pen.printed(due)), (words[4], customer),
    )  # fmt: skip
    table = [(words[7], words[8], words[9], words[10], words[11])]
    for at, (name, count, price) in enumerate(rows, 1):
        table.append((str(at), name, str(count), pen.money(price), pen.money(round(count * price, 2))))
    sums = ((words[12], pen.money(net)), (f"{words[13]} 19%", pen.money(tax)))
    return Draft(
        kind=f"invoice {pen.tongue}",
        blocks=(
            Text(text=pen.one(FIRMS), is_heading=True),
            Text(text=words[0]),
            Pairs(pairs=head, way=pen.dice.choice(["colon", "columns", "twos"])),
            Beside(left=(words[5], buyer, street, town), right=(words[6], other, pen.one(STREETS), pen.one(TOWNS))),
            Rows(rows=tuple(table), ends=frozenset({2, 3, 4})),
            Pairs(pairs=(*sums, (f"{words[14]} {currency}", pen.money(round(net + tax, 2)))), way="columns"),
            Text(text=words[15].format(days=days)),
        ),
        schema=record(
            invoice_number=text(called(1)), invoice_date=day(called(2)), due_date=day(called(3)),
            customer_number=text(called(4)), buyer_name=text(), buyer_address=text(), currency=choice(*CURRENCIES),
            payment_days=number(), subtotal=number(called(12)), vat=number(called(13)), vat_rate=number(),
            total=number(called(14)),
            items=array(
                description=text(called(8)), quantity=number(called(9)), unit_price=number(called(10)),
                amount=number(called(11)),
            ),
        ),
        value={
            "invoice_number": code, "invoice_date": issued.isoformat(), "due_date": due.isoformat(),
            "customer_number": customer, "buyer_name": pen.recased(buyer), "buyer_address": f"{street}, {town}",
            "currency": currency, "payment_days": days, "subtotal": net, "vat": tax,
            "vat_rate": pen.dice.choice([19, 0.19]), "total": round(net + tax, 2),
            "items": [
                {"description": name, "quantity": count, "unit_price": price, "amount": round(count * price, 2)}
                for name, count, price in rows
            ],
        },
    )  # fmt: skip


def letter(pen: ValueWriter) -> Draft:
    """Running text with facts in it."""
    sender, reader = pen.some(PEOPLE, 2)
    firm, street, town = pen.one(FIRMS), pen.one(STREETS), pen.one(TOWNS)
    written, met = pen.day(), pen.day()
    sum_, seats, code = pen.amount(500, 90000), pen.dice.randint(3, 60), pen.code("@@@/##/###")
    if pen.tongue == "de":
        body = (
            f"vielen Dank für unser Gespräch am {pen.printed(met)}. Wie besprochen bieten wir Ihnen die Schulung für "
            f"{seats} Personen zum Preis von {pen.money(sum_)} Euro an. Bitte nennen Sie bei Rückfragen unser Zeichen "
            f"{code}. Die Räume sind barrierefrei und für Gruppen dieser Größe gut geeignet."
        )
        start, end, subject = f"Sehr geehrte Frau {reader.split()[-1]},", "Mit freundlichen Grüßen", "Angebot Schulung"
    else:
        body = (
            f"thank you for meeting us on {pen.printed(met)}. As agreed we offer the training for {seats} people at a "
            f"price of ${pen.money(sum_)}. Please quote our reference {code} in all correspondence. The rooms have "
            f"step-free access and are well suited for groups of this size."
        )
        start, end, subject = f"Dear {reader.split()[-1]},", "Yours sincerely", "Offer for staff training"
    return Draft(
        kind=f"letter {pen.tongue}",
        blocks=(
            Beside(left=(firm, street, town), right=(pen.printed(written),)),
            Text(text=reader),
            Text(text=subject, is_heading=True),
            Text(text=start),
            Text(text=body),
            Text(text=end),
            Text(text=sender),
        ),
        schema=record(
            letter_date=day(), meeting_date=day(), sender=text(), recipient=text(), company=text(), address=text(),
            subject=text(), price=number(), currency=choice(*CURRENCIES), participants=number(), reference=text(),
            offer=text(),
        ),
        value={
            "letter_date": written.isoformat(), "meeting_date": met.isoformat(), "sender": sender, "recipient": reader,
            "company": pen.recased(firm), "address": f"{street}\n{town}", "subject": subject, "price": sum_,
            "currency": "EUR" if pen.tongue == "de" else "USD", "participants": seats, "reference": code,
            "offer": body.partition(". ")[2],
        },
    )  # fmt: skip


def contract(pen: ValueWriter) -> Draft:
    """Parties, a term, a fee, clauses."""
    one, other = pen.some(FIRMS, 2)
    signed, begins = pen.day(), pen.day()
    fee, term, notice = (
        float(pen.dice.randrange(1000, 90000, 50)),
        pen.dice.choice([12, 24, 36]),
        pen.dice.choice([1, 3]),
    )
    signer, second = pen.some(PEOPLE, 2)
    blocks: tuple[Block, ...]
    if pen.tongue == "zh":
        blocks = (
            Text(text="技术服务合同", is_heading=True),
            Pairs(pairs=(("甲方", one), ("乙方", other), ("签订日期", pen.printed(signed)))),
            Text(text=f"第一条 乙方自{pen.printed(begins)}起向甲方提供技术服务，合同期限为{term}个月。"),
            Text(text=f"第二条 服务费用为每月人民币{pen.money(fee)}元，甲方应于每月五日前支付。"),
            Text(text=f"第三条 任何一方可提前{notice}个月书面通知对方终止本合同。"),
            Text(text="第四条 本合同适用中华人民共和国法律，争议提交上海仲裁委员会仲裁。"),
            Pairs(pairs=(("甲方代表", signer), ("乙方代表", second)), way="twos"),
        )
        law, currency = "中华人民共和国法律", "CNY"
        titles = ("甲方", "乙方", "签订日期", "甲方代表", "乙方代表")
    else:
        blocks = (
            Text(text="Service Agreement", is_heading=True),
            Text(text=f"This agreement is made on {pen.printed(signed)} between {one} (the Client) and {other} (the "
                      f"Provider)."),
            Text(text=f"1. Term. The services begin on {pen.printed(begins)} and run for a term of {term} months."),
            Text(text=f"2. Fees. The Client shall pay EUR {pen.money(fee)} per month in advance."),
            Text(text=f"3. Termination. Either party may terminate by giving {notice} months' written notice."),
            Text(text="4. Law. This agreement is governed by the laws of England and Wales."),
            Pairs(pairs=(("Signed for the Client", signer), ("Signed for the Provider", second))),
        )  # fmt: skip
        law, currency = "laws of England and Wales", "EUR"
        titles = ("Client", "Provider", "Date", "Signed for the Client", "Signed for the Provider")
    return Draft(
        kind=f"contract {pen.tongue}",
        blocks=blocks,
        schema=record(
            client=text(titles[0]), provider=text(titles[1]), signed_on=day(titles[2]), start_date=day(),
            term_months=number(), monthly_fee=number(), currency=choice(*CURRENCIES), notice_months=number(),
            governing_law=text(), client_signatory=text(titles[3]), provider_signatory=text(titles[4]),
        ),
        value={
            "client": one, "provider": pen.recased(other), "signed_on": signed.isoformat(),
            "start_date": begins.isoformat(), "term_months": term, "monthly_fee": fee, "currency": currency,
            "notice_months": notice, "governing_law": law, "client_signatory": signer, "provider_signatory": second,
        },
    )  # fmt: skip


TESTS = (
    ("Haemoglobin", "g/dL", 11.5, 16.5), ("Leukocytes", "10^9/L", 4.0, 10.0), ("Glucose", "mmol/L", 3.9, 5.6),
    ("Creatinine", "µmol/L", 45, 84), ("Potassium", "mmol/L", 3.5, 5.1), ("Ferritin", "ng/mL", 13, 150),
)  # fmt: skip


def laboratory(pen: ValueWriter) -> Draft:
    """A patient and a table of values with their ranges."""
    patient, doctor = pen.some(PEOPLE, 2)
    born, taken = pen.day().replace(year=pen.dice.randint(1940, 2004)), pen.day()
    sex, is_fasting = pen.dice.choice(["female", "male"]), pen.dice.random() < 0.5
    rows = [(*test, round(pen.dice.uniform(test[2] * 0.7, test[3] * 1.3), 1)) for test in pen.dice.sample(TESTS, 5)]
    flags = ["high" if value > most else "low" if value < least else "normal" for _, _, least, most, value in rows]
    german = pen.tongue == "de"
    names = (
        ("Patient", "Geburtsdatum", "Geschlecht", "Entnahme", "Nüchtern", "Arzt", "Probennr.") if german
        else ("Patient", "Date of birth", "Sex", "Collected", "Fasting", "Physician", "Sample No.")
    )  # fmt: skip
    sexes = {"female": "weiblich" if german else "Female", "male": "männlich" if german else "Male"}
    yes = ("ja" if german else "Yes") if is_fasting else ("nein" if german else "No")
    sample = pen.code("########")
    said = (patient, pen.printed(born), sexes[sex], pen.printed(taken), yes, doctor, sample)
    table = [
        ("Untersuchung", "Wert", "Einheit", "Referenz", "") if german else ("Test", "Result", "Unit", "Range", "Flag")
    ]
    for (name, unit, least, most, value), flag in zip(rows, flags, strict=True):
        mark = {"high": "H", "low": "L", "normal": ""}[flag] if german else flag
        table.append((name, str(value).replace(".", "," if german else "."), unit, f"{least} - {most}", mark))
    titled = dict.fromkeys(range(7), "") if not german else dict(enumerate(names))
    return Draft(
        kind=f"laboratory {pen.tongue}",
        blocks=(
            Text(text="Laborbefund" if german else "Laboratory Report", is_heading=True),
            Pairs(pairs=tuple(zip(names, said, strict=True)), way=pen.dice.choice(["colon", "columns", "twos"])),
            Rows(rows=tuple(table)),
        ),
        schema=record(
            patient=text(), date_of_birth=day(titled[1]), sex=choice("female", "male", title=titled[2]),
            collected=day(titled[3]), fasting=truth(titled[4]), physician=text(titled[5]), sample_no=text(titled[6]),
            results=array(
                test=text(), value=number("Result"), unit=text(), range_low=number(), range_high=number(),
            ),
        ),
        value={
            "patient": pen.recased(patient), "date_of_birth": born.isoformat(), "sex": sex,
            "collected": taken.isoformat(), "fasting": is_fasting, "physician": doctor, "sample_no": sample,
            "results": [
                {"test": name, "value": value, "unit": unit, "range_low": least, "range_high": most}
                for name, unit, least, most, value in rows
            ],
        },
    )  # fmt: skip


def receipt(pen: ValueWriter) -> Draft:
    """Short lines, a thing and its price in each."""
    goods = pen.some(GOODS, pen.dice.randint(3, 6))
    rows = [(name, pen.dice.randint(1, 4), pen.amount(0.5, 60)) for name in goods]
    total = round(sum(count * price for _, count, price in rows), 2)
    bought, hour = pen.day(), f"{pen.dice.randint(8, 21):02}:{pen.dice.randint(0, 59):02}"
    given = float(int(total / 10 + 1) * 10)
    sign = "¥" if pen.tongue == "zh" else "$"
    shop, till = pen.one(FIRMS), pen.code("0##")
    words = (
        "合计|现金|找零|收银员|流水号|时间" if pen.tongue == "zh" else "TOTAL|CASH|CHANGE|Cashier|Receipt #|Time"
    ).split("|")
    lines = [
        Text(text=f"{name}  {count} x {pen.money(price)}  {pen.money(count * price)}") for name, count, price in rows
    ]
    cashier, code = pen.one(PEOPLE), pen.code("######")
    return Draft(
        kind=f"receipt {pen.tongue}",
        blocks=(
            Text(text=shop.upper()),
            Text(text=f"{pen.one(STREETS)}  {pen.one(TOWNS)}"),
            Pairs(pairs=((words[4], code), (words[5], f"{bought:%Y-%m-%d} {hour}"), (words[3], cashier))),
            *lines,
            Pairs(
                pairs=((words[0], f"{sign}{pen.money(total)}"), (words[1], f"{sign}{pen.money(given)}"),
                       (words[2], f"{sign}{pen.money(given - total)}")),
                way="columns",
            ),
            Text(text=f"{'终端' if pen.tongue == 'zh' else 'Terminal'} {till}"),
        ),
        schema=record(
            shop=text(), receipt_number=text(words[4]), purchased_at=text(format="date-time"), cashier=text(words[3]),
            total=number(words[0]), cash=number(words[1]), change=number(words[2]), currency=choice(*CURRENCIES),
            items=array(name=text(), quantity=number(), price=number(), sum=number()),
        ),
        value={
            "shop": shop, "receipt_number": code, "purchased_at": f"{bought:%Y-%m-%d}T{hour}:00", "cashier": cashier,
            "total": total, "cash": given, "change": round(given - total, 2),
            "currency": "CNY" if pen.tongue == "zh" else "USD",
            "items": [
                {"name": name, "quantity": count, "price": price, "sum": round(count * price, 2)}
                for name, count, price in rows
            ],
        },
    )  # fmt: skip


SKILLS = "Python|SQL|Kubernetes|Technical writing|Team leadership|AutoCAD|Spanish|Data modelling|Rust|Statistics"
POSTS = "Data Engineer|Project Manager|Quality Inspector|Research Assistant|Sales Lead|Site Engineer"


def life(pen: ValueWriter) -> Draft:
    """A CV: posts with months, skills in one line."""
    name, mail = pen.one(PEOPLE), f"{pen.code('@@@@').lower()}@example.org"
    phone = f"+49 (0){pen.code('221')} {pen.code('#######')}"
    skills = pen.dice.sample(SKILLS.split("|"), 4)
    posts = list(zip(pen.dice.sample(POSTS.split("|"), 3), pen.some(FIRMS, 3), strict=True))
    first = pen.dice.randint(2009, 2014)
    months = [(date_of(first + 3 * at, pen), date_of(first + 3 * at + 2, pen)) for at in range(3)]
    blocks: list[Text] = []
    for (post, firm), (begun, ended) in zip(posts, months, strict=True):
        spoken = [f"{month_name(pen.tongue, month)} {year}" for year, month in (begun, ended)]
        shown = spoken if pen.dice.random() < 0.5 else [f"{month:02}/{year}" for year, month in (begun, ended)]
        blocks += [Text(text=f"{shown[0]} – {shown[1]}   {post}, {firm}")]
    return Draft(
        kind=f"cv {pen.tongue}",
        blocks=(
            Text(text=name.upper(), is_heading=True),
            Pairs(pairs=(("E-mail", mail), ("Tel.", phone)), way="twos"),
            Text(text="Berufserfahrung" if pen.tongue == "de" else "Experience", is_heading=True),
            *blocks,
            Text(text="Kenntnisse" if pen.tongue == "de" else "Skills", is_heading=True),
            Text(text=", ".join(skills)),
        ),
        schema=record(
            name=text(), email=text(format="email"), phone=text(),
            skills={"type": "array", "items": {"type": "string"}},
            experience=array(position=text(), employer=text(), start=text(), end=text()),
        ),
        value={
            "name": name, "email": mail, "phone": phone.replace("(0)", "").replace(" ", ""), "skills": skills,
            "experience": [
                {"position": post, "employer": firm, "start": _month(begun), "end": _month(ended)}
                for (post, firm), (begun, ended) in zip(posts, months, strict=True)
            ],
        },
    )  # fmt: skip


def date_of(year: int, pen: ValueWriter) -> tuple[int, int]:
    """A month of a year."""
    return year, pen.dice.randint(1, 12)


def _month(month: tuple[int, int]) -> str:
    return f"{month[0]}-{month[1]:02}"


KINDS: tuple[Kind, ...] = (
    (invoice, "en de zh"), (letter, "en de"), (contract, "en zh"), (laboratory, "en de"), (receipt, "en zh"),
    (life, "en de"),
)  # fmt: skip


def documents(seed: int) -> Iterator[Facts]:
    """Three of each kind in each language, laid out in different ways."""
    ways = ("pdf", "scan", "word", "pdf", "scan", "markdown")
    return documents_of(KINDS, seed, of_each=3, ways=ways)
