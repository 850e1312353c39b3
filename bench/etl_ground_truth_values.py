"""Names, streets, goods, and printed numbers and dates in three languages."""

import random
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

CURRENCIES = ("EUR", "USD", "GBP", "CNY", "CHF")
PEOPLE = {
    "en": "Hannah Whitlock|Peter Osgood|Maria Castellano|Tom Abernathy|Grace Holloway|Daniel Price|Ruth Ellery",
    "de": "Jürgen Möller|Katrin Weiß|Anna-Lena Groß|Stefan Brückner|Ulrike Schäfer|Markus Vogt|Petra Lindner",
    "zh": "王建国|李晓梅|张志强|陈雨桐|刘思远|赵雅琴|周文博",
}
FIRMS = {
    "en": "Northgate Deps Ltd|Harrow & Finch LLP|Bluewater Logistics Inc.|Kestrel Systems plc|Orchard Foods Ltd",
    "de": "Rheintal Pumpen GmbH|Bäckerei Sommer KG|Alpha Metallbau AG|Hansen & Söhne OHG|Nordlicht Energie GmbH",
    "zh": "上海远航贸易有限公司|北京晨光科技有限公司|深圳蓝海电子有限公司|广州惠民食品有限公司|杭州云栖软件有限公司",
}
STREETS = {
    "en": "14 Mill Lane|220 Baker Street|7 Dock Road|31 Queen's Avenue",
    "de": "Lindenstraße 12|Hauptstr. 45a|Am Markt 3|Goethestraße 118",
    "zh": "浦东新区世纪大道100号|海淀区中关村大街27号|南山区科技园路8号|天河区体育西路191号",
}
TOWNS = {
    "en": "Leeds LS1 4DY|London NW1 6XE|Bristol BS1 5TR|York YO1 7HH",
    "de": "50667 Köln|80331 München|20095 Hamburg|04109 Leipzig",
    "zh": "上海市|北京市|深圳市|广州市",
}
GOODS = {
    "en": "Steel bracket M8|Copper pipe 22 mm|Safety gloves, size L|LED panel 60x60|Hydraulic hose 3/4 in|"
    "Paint, white, 5 l|Drill bit set|Cable tie 200 mm",
    "de": "Kugellager 6204|Dichtungssatz NBR|Schraube M10 verzinkt|Förderband 2 m|Hydrauliköl HLP 46|Filterpatrone F7|"
    "Arbeitshandschuhe Gr. 9|Klemmleiste 12-polig",
    "zh": "不锈钢螺栓|液晶显示屏|办公椅（黑色）|激光打印机|网络交换机|数据线 2米|锂电池组|台灯",
}
MONTHS = {
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
}


@dataclass(frozen=True, kw_only=True)
class ValueWriter:
    """Generates random values in one language."""

    dice: random.Random
    tongue: str

    def one(self, pool: dict[str, str]) -> str:
        """One item of a pool."""
        return self.dice.choice(pool[self.tongue].split("|"))

    def some(self, pool: dict[str, str], count: int) -> list[str]:
        """Several different items of a pool."""
        return self.dice.sample(pool[self.tongue].split("|"), count)

    def amount(self, least: float, most: float) -> float:
        """An amount of money."""
        return round(self.dice.uniform(least, most), 2)

    def money(self, amount: float) -> str:
        """A printed amount."""
        text = f"{amount:,.2f}"
        if self.tongue == "de":
            return text.translate(str.maketrans(",.", ".,"))
        return text

    def day(self) -> date:
        """A date."""
        return date(2023, 1, 1) + timedelta(days=self.dice.randrange(1300))

    def printed(self, day: date) -> str:
        """A printed date."""
        if self.tongue == "zh":
            return self.dice.choice([f"{day.year}年{day.month}月{day.day}日", f"{day:%Y-%m-%d}", f"{day:%Y/%m/%d}"])
        month = month_name(self.tongue, day.month)
        if self.tongue == "de":
            return self.dice.choice([f"{day:%d.%m.%Y}", f"{day.day}. {month} {day.year}", f"{day:%d.%m.%y}"])
        ways = [f"{day.day} {month} {day.year}", f"{month} {day.day}, {day.year}", f"{day:%d/%m/%Y}", f"{day:%m/%d/%Y}"]
        return self.dice.choice([*ways, f"{day.day:02}-{month[:3]}-{day:%y}", f"{day:%Y-%m-%d}"])

    def code(self, shape: str) -> str:
        """A reference number by pattern: # is a digit, @ a letter."""
        letters = {"#": "0123456789", "@": "ABCDEFGHKLMNPRSTUVWXYZ"}
        return "".join(self.dice.choice(letters.get(sign, sign)) for sign in shape)

    def recased(self, text: str) -> str:
        """Text as a model may write it."""
        return self.dice.choice([text, text, text, text.upper(), " ".join(text.split())])


def month_name(tongue: str, month: int) -> str:
    """The name of a month."""
    return MONTHS[tongue].split()[month - 1]


def text(title: str = "", **more: Any) -> dict[str, Any]:
    """The schema of a string."""
    return _titled({"type": ["string", "null"], **more}, title)


def number(title: str = "") -> dict[str, Any]:
    """The schema of a number."""
    return _titled({"type": ["number", "null"]}, title)


def day(title: str = "") -> dict[str, Any]:
    """The schema of a date."""
    return _titled({"type": ["string", "null"], "format": "date"}, title)


def truth(title: str = "") -> dict[str, Any]:
    """The schema of a boolean."""
    return _titled({"type": ["boolean", "null"]}, title)


def choice(*options: str, title: str = "") -> dict[str, Any]:
    """The schema of an enum."""
    return _titled({"enum": [*options, None]}, title)


def record(**properties: Any) -> dict[str, Any]:
    """The schema of an object."""
    return {"type": "object", "properties": properties}


def array(title: str = "", **properties: Any) -> dict[str, Any]:
    """The schema of a list of objects."""
    return _titled({"type": "array", "items": record(**properties)}, title)


def _titled(schema: dict[str, Any], title: str) -> dict[str, Any]:
    return {**schema, "title": title} if title else schema
