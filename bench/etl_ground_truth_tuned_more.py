"""More documents that grounding was tuned on: orders, statements, policies, bills, minutes, and others."""

from collections.abc import Iterator
from datetime import timedelta

from bench.etl_ground_truth import Beside, Block, Draft, Facts, Kind, Pairs, Rows, Text, documents_of
from bench.etl_ground_truth_values import (
    FIRMS,
    GOODS,
    PEOPLE,
    STREETS,
    TOWNS,
    ValueWriter,
    array,
    choice,
    day,
    number,
    record,
    text,
    truth,
)


def order(pen: ValueWriter) -> Draft:
    """A long table that may go over to the next page, delivery and terms below it."""
    german = pen.tongue == "de"
    code, asked = pen.code("PO######"), pen.day()
    wanted_by = asked + timedelta(days=pen.dice.randint(5, 60))
    vendor, contact = pen.one(FIRMS), pen.one(PEOPLE)
    goods = [f"{name} / {pen.code('@##')}" for name in pen.some(GOODS, 8) * pen.dice.choice([1, 3])]
    rows = [(pen.code("##-###"), name, pen.dice.randint(1, 500), pen.amount(0.1, 80)) for name in goods]
    total = round(sum(count * price for *_, count, price in rows), 2)
    is_partial = pen.dice.random() < 0.5
    head = ("Bestellnummer", "Bestelldatum", "Lieferant", "Liefertermin", "Ansprechpartner") if german else (
        "Purchase order", "Order date", "Supplier", "Deliver by", "Contact")  # fmt: skip
    table = [("Artikel", "Beschreibung", "Stk", "EUR/Stk", "EUR gesamt") if german else
             ("Item code", "Item", "Units", "Price each", "Line total")]  # fmt: skip
    for mark, name, count, price in rows:
        table.append((mark, name, f"{count}", pen.money(price), pen.money(count * price)))
    said = (code, pen.printed(asked), vendor, pen.printed(wanted_by), contact)
    allowed = ("ja" if german else "yes") if is_partial else ("nein" if german else "no")
    return Draft(
        kind=f"order {pen.tongue}",
        blocks=(
            Text(text="Bestellung" if german else "Purchase Order", is_heading=True),
            Pairs(pairs=tuple(zip(head, said, strict=True)), way=pen.dice.choice(["colon", "columns"])),
            Rows(rows=tuple(table), ends=frozenset({2, 3, 4})),
            Pairs(pairs=(("Auftragswert" if german else "Order value", f"EUR {pen.money(total)}"),
                         ("Teillieferung" if german else "Partial delivery", allowed))),
        ),
        schema=record(
            purchase_order=text("Bestellnummer" if german else ""), order_date=day(), supplier=text(),
            deliver_by=day(), contact=text(), order_value=number("Auftragswert" if german else ""),
            partial_delivery=truth("Teillieferung" if german else ""), currency=choice("EUR", "USD", "GBP"),
            lines=array(
                item_code=text("Artikel" if german else ""), item=text(), units=number(), price_each=number(),
                line_total=number(),
            ),
        ),
        value={
            "purchase_order": code, "order_date": asked.isoformat(), "supplier": pen.recased(vendor),
            "deliver_by": wanted_by.isoformat(), "contact": contact, "order_value": total,
            "partial_delivery": is_partial, "currency": "EUR",
            "lines": [
                {"item_code": mark, "item": name, "units": count, "price_each": price,
                 "line_total": round(count * price, 2)}
                for mark, name, count, price in rows
            ],
        },
    )  # fmt: skip


def statement(pen: ValueWriter) -> Draft:
    """Money that comes and goes, with a sign or in brackets."""
    german = pen.tongue == "de"
    opening, holder = pen.amount(100, 9000), pen.one(PEOPLE)
    iban = pen.code("DE## #### #### #### #### ##")
    names = ["Rent", "Salary", "Grocer", "Electricity", "Refund", "Cinema", "Pharmacy"]
    if german:
        names = ["Miete", "Gehalt", "Lebensmittel", "Strom", "Erstattung", "Kino", "Apotheke"]
    start = pen.day()
    moves = []
    balance = opening
    for at, name in enumerate(pen.dice.sample(names, 5)):
        amount = pen.amount(5, 1900) * pen.dice.choice([-1, 1])
        balance = round(balance + amount, 2)
        moves.append((start + timedelta(days=2 * at), name, round(amount, 2), balance))
    table = [("Datum", "Text", "Umsatz", "Saldo") if german else ("Date", "Details", "Amount", "Balance")]
    for when, name, amount, after in moves:
        shown = pen.money(abs(amount))
        minus = f"{shown}-" if german else pen.dice.choice([f"-{shown}", f"({shown})"])
        table.append((f"{when:%d.%m.%Y}" if german else f"{when:%d %b %Y}", name, minus if amount < 0 else shown,
                      pen.money(after) if after >= 0 else f"-{pen.money(-after)}"))  # fmt: skip
    head = ("Kontoinhaber", "IBAN", "Alter Saldo", "Neuer Saldo") if german else (
        "Account holder", "IBAN", "Opening balance", "Closing balance")  # fmt: skip
    closing = moves[-1][3]
    said = (holder, iban, pen.money(opening), pen.money(closing) if closing >= 0 else f"-{pen.money(-closing)}")
    return Draft(
        kind=f"statement {pen.tongue}",
        blocks=(
            Text(text="Kontoauszug" if german else "Statement of account", is_heading=True),
            Pairs(pairs=tuple(zip(head, said, strict=True)), way=pen.dice.choice(["colon", "columns", "twos"])),
            Rows(rows=tuple(table), ends=frozenset({2, 3})),
        ),
        schema=record(
            account_holder=text(head[0]), iban=text(), opening_balance=number(head[2]), closing_balance=number(head[3]),
            transactions=array(booked_on=day(), details=text(), amount=number(), balance=number()),
        ),
        value={
            "account_holder": holder, "iban": iban.replace(" ", ""), "opening_balance": opening,
            "closing_balance": closing,
            "transactions": [
                {"booked_on": when.isoformat(), "details": name, "amount": amount, "balance": after}
                for when, name, amount, after in moves
            ],
        },
    )  # fmt: skip


def delivery(pen: ValueWriter) -> Draft:
    """A Chinese delivery note: full-width marks, numbers with their units."""
    code, sent = pen.code("SH2026####"), pen.day()
    sender, receiver = pen.some(FIRMS, 2)
    street, town, driver = pen.one(STREETS), pen.one(TOWNS), pen.one(PEOPLE)
    plate, weight = f"沪A{pen.code('#####')}", pen.dice.randint(50, 4000)
    rows = [(name, pen.dice.randint(1, 60), pen.dice.choice(["箱", "件", "台"])) for name in pen.some(GOODS, 4)]
    table = [("名称", "数量", "单位", "备注"), *((name, str(count), unit, "") for name, count, unit in rows)]
    return Draft(
        kind="delivery zh",
        blocks=(
            Text(text="送货单", is_heading=True),
            Pairs(
                pairs=(("送货单号", code), ("送货日期", pen.printed(sent)), ("发货方", sender), ("收货方", receiver),
                       ("收货地址", f"{town}{street}"), ("司机", driver), ("车牌号", plate),
                       ("总重量", f"{weight}公斤")),
                way=pen.dice.choice(["colon", "columns", "twos"]),
            ),
            Rows(rows=tuple(table)),
            Text(text=f"以上货物共{sum(count for _, count, _ in rows)}件，请当面点清，签收后概不负责。"),
        ),
        schema=record(
            note_number=text("送货单号"), delivery_date=day(), sender=text("发货方"), receiver=text("收货方"),
            address=text("收货地址"), driver=text("司机"), plate=text("车牌号"), weight_kg=number("总重量"),
            total_pieces=number(), goods=array(name=text(), quantity=number(), unit=choice("箱", "件", "台")),
        ),
        value={
            "note_number": code, "delivery_date": sent.isoformat(), "sender": sender, "receiver": receiver,
            "address": f"{town}{street}", "driver": driver, "plate": plate, "weight_kg": weight,
            "total_pieces": sum(count for _, count, _ in rows),
            "goods": [{"name": name, "quantity": count, "unit": unit} for name, count, unit in rows],
        },
    )  # fmt: skip


DRUGS = (("Ramipril", "5 mg"), ("Metformin", "500 mg"), ("Bisoprolol", "2.5 mg"), ("Atorvastatin", "40 mg"))


def discharge(pen: ValueWriter) -> Draft:
    """A hospital's letter: prose, and medicines one to a line."""
    patient, doctor = pen.some(PEOPLE, 2)
    came = pen.day()
    left, born = came + timedelta(days=pen.dice.randint(2, 20)), pen.day().replace(year=pen.dice.randint(1935, 1999))
    drugs = pen.dice.sample(DRUGS, 3)
    times = [pen.dice.choice(["once daily", "twice daily", "three times daily"]) for _ in drugs]
    systolic, pulse, case = pen.dice.randint(105, 160), pen.dice.randint(55, 110), pen.code("K-######")
    course = (
        "The patient was admitted with chest pain and shortness of breath. Coronary angiography showed no relevant "
        "stenosis, and the symptoms resolved under medication within two days."
    )
    return Draft(
        kind="discharge en",
        blocks=(
            Beside(
                left=("St. Anne's Hospital", pen.one(STREETS), pen.one(TOWNS)),
                right=(f"Case {case}", pen.printed(left)),
            ),
            Text(text=f"Patient: {patient}, born {pen.printed(born)}"),
            Text(text=f"Admitted on {pen.printed(came)}, discharged on {pen.printed(left)}."),
            Text(text=course),
            Text(text=f"On discharge blood pressure was {systolic}/80 mmHg and pulse {pulse} per minute."),
            Text(text="Medication", is_heading=True),
            *(Text(text=f"{name} {dose} {time}") for (name, dose), time in zip(drugs, times, strict=True)),
            Text(text=f"Dr. {doctor}"),
        ),
        schema=record(
            patient=text(), date_of_birth=day(), admitted=day(), discharged=day(), case_number=text(), course=text(),
            systolic=number(), pulse=number(), physician=text(),
            medication=array(drug=text(), dose=text(), frequency=text()),
        ),
        value={
            "patient": patient, "date_of_birth": born.isoformat(), "admitted": came.isoformat(),
            "discharged": left.isoformat(), "case_number": case, "course": course, "systolic": systolic, "pulse": pulse,
            "physician": doctor,
            "medication": [
                {"drug": name, "dose": dose.replace(" ", pen.dice.choice([" ", ""])), "frequency": time}
                for (name, dose), time in zip(drugs, times, strict=True)
            ],
        },
    )  # fmt: skip


def policy(pen: ValueWriter) -> Draft:
    """An insurance policy: premiums, a rate, options to tick."""
    code, holder = pen.code("P-##-######"), pen.one(PEOPLE)
    begins = pen.day()
    ends = begins.replace(year=begins.year + 1)
    premium, insured = pen.amount(90, 2400), pen.dice.randrange(10_000, 900_000, 5000)
    excess, bonus = pen.dice.choice([150, 250, 500]), pen.dice.choice([5, 10, 12.5, 30])
    cover = pen.dice.choice(["third party", "comprehensive"])
    has_legal, has_glass = pen.dice.random() < 0.5, pen.dice.random() < 0.5
    plan = pen.dice.choice(["monthly", "quarterly", "annual"])
    boxes = [
        f"[{'x' if ticked else ' '}] {name}"
        for name, ticked in (("Legal cover", has_legal), ("Glass cover", has_glass))
    ]
    return Draft(
        kind="policy en",
        blocks=(
            Text(text="Motor Insurance Policy", is_heading=True),
            Pairs(
                pairs=(("Policy number", code), ("Policyholder", holder), ("Type of cover", cover.title()),
                       ("Sum insured", f"£{insured:,}"), ("Excess", f"GBP {excess}"),
                       ("Premium", f"£ {pen.money(premium)}"),
                       ("Payment", plan.capitalize()), ("No-claims bonus", f"{bonus:g} %")),
                way=pen.dice.choice(["colon", "columns", "twos"]),
            ),
            Text(text=f"The policy runs from {pen.printed(begins)} until {pen.printed(ends)}, both days included."),
            *(Text(text=box) for box in boxes),
        ),
        schema=record(
            policy_number=text(), policyholder=text(), cover_type=choice("third_party", "comprehensive"),
            sum_insured=number(), excess=number(), premium=number(), currency=choice("GBP", "EUR", "USD"),
            payment=choice("monthly", "quarterly", "annual"), no_claims_bonus=number(), valid_from=day(),
            valid_until=day(), legal_cover=truth(), glass_cover=truth(),
        ),
        value={
            "policy_number": code, "policyholder": holder, "cover_type": cover.replace(" ", "_"),
            "sum_insured": insured, "excess": excess, "premium": premium, "currency": "GBP", "payment": plan,
            "no_claims_bonus": bonus, "valid_from": begins.isoformat(), "valid_until": ends.isoformat(),
            "legal_cover": has_legal, "glass_cover": has_glass,
        },
    )  # fmt: skip


def bill(pen: ValueWriter) -> Draft:
    """Meter readings, use and what is to pay."""
    german = pen.tongue == "de"
    old = pen.dice.randint(1000, 60000)
    used = pen.dice.randint(200, 5000)
    price, fee = round(pen.dice.uniform(0.2, 0.45), 4), pen.amount(5, 15)
    total = round(used * price + fee, 2)
    code, meter, customer = pen.code("##########"), pen.code("#@@#####"), pen.one(PEOPLE)
    begun, billed = pen.day(), pen.day()
    street, town = pen.one(STREETS), pen.one(TOWNS)
    labels = (
        "Vertragskonto|Zählernummer|Kunde|Verbrauchsstelle|Zählerstand alt|Zählerstand neu|Verbrauch|Arbeitspreis|"
        "Grundpreis|Zu zahlender Betrag|Abrechnung ab|Datum" if german
        else "户号|电表号|用户名称|用电地址|上期读数|本期读数|用电量|电价|基本费|应付金额|计费起始|账单日期"
    ).split("|")  # fmt: skip
    unit = " EUR" if german else "元"
    rate = f"{price:.4f}".replace(".", ",") if german else f"{price:.4f}"
    thousands = (lambda count: f"{count:,}".replace(",", ".")) if german else str
    said = (
        code, meter, customer, f"{street}, {town}" if german else f"{town}{street}", thousands(old),
        thousands(old + used),
        f"{thousands(used)} kWh", f"{rate}{unit}/kWh", f"{pen.money(fee)}{unit}", f"{pen.money(total)}{unit}",
        pen.printed(begun), pen.printed(billed),
    )  # fmt: skip
    titles = labels if not german else [""] * 12
    return Draft(
        kind=f"bill {pen.tongue}",
        blocks=(
            Text(text="Stromrechnung" if german else "电费账单", is_heading=True),
            Pairs(pairs=tuple(zip(labels, said, strict=True)), way=pen.dice.choice(["colon", "columns", "twos"])),
        ),
        schema=record(
            account=text(titles[0]), meter_number=text(titles[1]), customer=text(titles[2]), site=text(titles[3]),
            old_reading=number(titles[4]), new_reading=number(titles[5]), used_kwh=number(titles[6]),
            price_per_kwh=number(titles[7]), base_fee=number(titles[8]), amount_due=number(titles[9]),
            billed_from=day(titles[10]), bill_date=day(titles[11]), currency=choice("EUR", "CNY", "USD", "GBP"),
        ),
        value={
            "account": code, "meter_number": meter, "customer": customer, "site": said[3], "old_reading": old,
            "new_reading": old + used, "used_kwh": used, "price_per_kwh": price, "base_fee": fee, "amount_due": total,
            "billed_from": begun.isoformat(), "bill_date": billed.isoformat(), "currency": "EUR" if german else "CNY",
        },
    )  # fmt: skip


DUTIES = ("check the fire doors", "ask three firms for offers", "write to the members", "book the hall for May",
          "renew the lease of the van", "send the minutes to all")  # fmt: skip


def minutes(pen: ValueWriter) -> Draft:
    """Who was there, what was decided, who does what."""
    people = pen.some(PEOPLE, 5)
    met, following = pen.day(), pen.day()
    budget, hour = pen.dice.randrange(2, 60) / 10, pen.dice.randint(14, 19)
    tasks = list(zip(pen.dice.sample(DUTIES, 3), pen.dice.sample(people, 3), strict=True))
    dues = [met + timedelta(days=pen.dice.randint(7, 90)) for _ in tasks]
    decided = f"The board approved a budget of {budget} million dollars for the new workshop, with two votes against."
    table = [
        ("Task", "Owner", "Due"),
        *((duty.capitalize(), who, f"{due:%d %b %Y}") for (duty, who), due in zip(tasks, dues, strict=True)),
    ]
    return Draft(
        kind="minutes en",
        blocks=(
            Text(text="Minutes of the Board Meeting", is_heading=True),
            Text(text=f"Held on {pen.printed(met)} at {hour - 12}:30 pm in the Guildhall, {pen.one(TOWNS)}"),
            Text(text=f"Present: {', '.join(people)}"),
            Text(text=decided),
            Rows(rows=tuple(table)),
            Text(text=f"The next meeting takes place on {pen.printed(following)}."),
        ),
        schema=record(
            held_at=text(format="date-time"), place=text(), present={"type": "array", "items": {"type": "string"}},
            decision=text(), budget=number(), next_meeting=day(), votes_against=number(),
            tasks=array(task=text(), owner=text(), due=day()),
        ),
        value={
            "held_at": f"{met.isoformat()}T{hour}:30:00", "place": "Guildhall", "present": people, "decision": decided,
            "budget": round(budget * 1_000_000), "next_meeting": following.isoformat(), "votes_against": 2,
            "tasks": [
                {"task": duty.capitalize(), "owner": who, "due": due.isoformat()}
                for (duty, who), due in zip(tasks, dues, strict=True)
            ],
        },
    )  # fmt: skip


def vacancy(pen: ValueWriter) -> Draft:
    """A job offered in Chinese: a list of demands, a range of pay."""
    firm, person = pen.one(FIRMS), pen.one(PEOPLE)
    post = pen.dice.choice(["后端开发工程师", "财务主管", "市场专员"])
    low = pen.dice.randrange(8, 20) * 1000
    high, count, years = low + pen.dice.randrange(2, 12) * 1000, pen.dice.randint(2, 9), pen.dice.choice(["三", "五"])
    until, town = pen.day(), pen.one(TOWNS)
    demands = pen.dice.sample(
        ["具备良好的沟通能力", "熟悉分布式系统", "能够适应出差", "英语读写流利", "持有相关证书"], 3
    )
    mail = f"hr{pen.code('##')}@example.com"
    blocks: list[Block] = [
        Text(text=f"{firm}招聘启事", is_heading=True),
        Pairs(pairs=(("职位", post), ("工作地点", town), ("招聘人数", f"{count}人"), ("月薪", f"{low}-{high}元"),
                     ("截止日期", pen.printed(until))), way=pen.dice.choice(["colon", "columns", "twos"])),
        Text(text=f"应聘者须本科以上学历，具有{years}年以上相关工作经验。"),
        *(Text(text=f"{at}、{demand}；") for at, demand in enumerate(demands, 1)),
        Text(text=f"简历请发送至 {mail}，联系人：{person}。"),
    ]  # fmt: skip
    return Draft(
        kind="vacancy zh",
        blocks=tuple(blocks),
        schema=record(
            company=text(), position=text(), city=text("工作地点"), openings=number("招聘人数"), salary_min=number(),
            salary_max=number(), apply_until=day("截止日期"), years_of_experience=number(), contact=text(),
            email=text(format="email"), requirements={"type": "array", "items": {"type": "string"}},
        ),
        value={
            "company": firm, "position": post, "city": town, "openings": count, "salary_min": low, "salary_max": high,
            "apply_until": until.isoformat(), "years_of_experience": {"三": 3, "五": 5}[years], "contact": person,
            "email": mail, "requirements": demands,
        },
    )  # fmt: skip


KINDS: tuple[Kind, ...] = (
    (order, "en de"), (statement, "en de"), (delivery, "zh"), (discharge, "en"), (policy, "en"),
    (bill, "de zh"), (minutes, "en"), (vacancy, "zh"),
)  # fmt: skip


def documents(seed: int) -> Iterator[Facts]:
    """Three of each kind in each language, laid out in different ways."""
    ways = ("scan", "pdf", "markdown", "pdf", "scan", "word", "pdf")
    return documents_of(KINDS, seed, of_each=3, ways=ways)
