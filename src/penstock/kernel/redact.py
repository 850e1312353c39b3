"""Redaction of log lines: secrets are replaced and personal data is masked.

`redact` works on the finished line, so it does not matter how a secret got there. It matches the format of secrets (our
keys, JWTs, AWS keys, private keys), values after a revealing name (password=…, "token": "…"), and e-mail addresses,
phone and ID numbers. It may redact too much, which is harmless.

Each pattern runs only when a quick substring search says that it could match: most lines contain nothing of it.
"""

import re
from functools import lru_cache

REDACTED = "***"
_NAME = r"passw(?:or)?d|passphrase|pwd|secret|token(?!s)|(?:api|access|private|signing)[-_ ]?key|authorization|cookie"
_NAME += r"|credential|signature"
_QUOTED = r'\\?"(?:[^"\\]|\\.){0,4000}"?' + r"|'(?:[^'\\]|\\.){0,4000}'?"
NAMED = re.compile(
    rf"((?:{_NAME})[\w.-]{{0,40}}\\?[\"']?\s{{0,3}}[:=]\s{{0,3}}(?:(?:bearer|basic)\s+)?)({_QUOTED}|[^\s,;&}}\])]+)",
    re.IGNORECASE,
)
SECRET_NAME = re.compile(_NAME, re.IGNORECASE)

OWN_KEY = re.compile(r"\b(sk-|st-|su-|pk-|rk-|whsec_)[\w-]{8,}")
JWT = re.compile(r"\beyJ[\w-]{4,}\.[\w-]{2,}(?:\.[\w-]*)?")
SCHEME = re.compile(r"\b((?i:bearer|basic))\s+(?=\S*[A-Z0-9=])[\w.~+/=-]{6,}")
AWS_KEY = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}")
PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
PASSWORD_HASH = re.compile(r"\$(?:argon2\w*|2[aby]|scrypt|pbkdf2[\w-]*)\$[^\s\"']+")
COOKIE = re.compile(
    r"(cookie\\?[\"']?\s{0,3}[:=]\s{0,3})[^\r\n\"'}]+", re.IGNORECASE
)  # all cookies, to the end of the line
USERINFO = re.compile(r"(://)(?:[^\s/?#]{0,300}|[^\s/@:]{0,100}:[^\s@]{0,200})@")

EMAIL = re.compile(r"\b([\w.+%-])[\w.+%-]{0,63}@((?:[\w-]{1,63}\.)+\w{2,24})\b")
LONG_NUMBER = re.compile(r"(?<![A-Za-z0-9_.])[A-Z]{0,2}[(+]?(?:\d[ \-().]{0,2}){7}")
# A number next to a Latin letter or digit is part of something else; next to a Chinese character it is not.
_NOT_AFTER, _NOT_BEFORE = r"(?<![A-Za-z0-9_.])", r"(?![A-Za-z0-9_])"
CHINESE_ID = re.compile(
    _NOT_AFTER + r"[1-9]\d{5}(?:18|19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])\d{3}[\dXx]" + _NOT_BEFORE
)
CHINESE_ID_OLD = re.compile(_NOT_AFTER + r"[1-9]\d{7}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])\d{3}" + _NOT_BEFORE)
CHINESE_MOBILE = re.compile(r"(?<![A-Za-z0-9_.])((?:(?:\+|00)86[ -]?)?1[3-9]\d)[ -]?\d{4}[ -]?(\d{4})" + _NOT_BEFORE)
PHONE = re.compile(
    r"(?<![\w.])(?:\+\d[\d \-().]{6,17}(\d\d)|(?:\(\d{3}\) ?|\d{3}[-. ])\d{3}[-. ]\d\d(\d\d))" + _NOT_BEFORE
)
OTHER_ID = re.compile(r"(?<![\w-])(?:\d{3}-\d{2}-\d{4}|[A-Z][12]\d{8}|[A-Z]{1,2}\d{6}\([0-9A]\)|[EG]\d{8})(?![\w-])")
CARD = re.compile(_NOT_AFTER + r"\d(?:[ -]?\d){12,18}" + _NOT_BEFORE)
ID_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
ID_CHECKS = "10X98765432"


def redact(text: str) -> str:
    """The text with secrets replaced and personal data masked."""
    lowered = text.lower()
    if _names_a_secret(lowered):
        text = NAMED.sub(_redact_value, COOKIE.sub(rf"\1{REDACTED}", text))
    if "-" in text or "$" in text or "eyJ" in text or "whsec_" in text:
        text = OWN_KEY.sub(
            rf"\1{REDACTED}", JWT.sub(REDACTED, PASSWORD_HASH.sub(REDACTED, PRIVATE_KEY.sub(REDACTED, text)))
        )
    if "bearer" in lowered or "basic" in lowered:
        text = SCHEME.sub(rf"\1 {REDACTED}", text)
    if "AKIA" in text or "ASIA" in text:
        text = AWS_KEY.sub(REDACTED, text)
    if "@" in text:
        text = EMAIL.sub(rf"\1{REDACTED}@\2", USERINFO.sub(rf"\1{REDACTED}@", text))
    return _mask_numbers(text) if LONG_NUMBER.search(text) else text


@lru_cache(maxsize=500)  # field names are few and checked all the time
def is_secret_name(name: str) -> bool:
    """Whether a value of this name is a secret, whatever it looks like."""
    return SECRET_NAME.search(name) is not None


def _names_a_secret(lowered: str) -> bool:
    """Whether `NAMED` could match. Written out for speed, since it runs for every log line."""
    return (
        "key" in lowered
        or "token" in lowered
        or "passw" in lowered
        or "passphrase" in lowered
        or "pwd" in lowered
        or "secret" in lowered
        or "authorization" in lowered
        or "cookie" in lowered
        or "credential" in lowered
        or "signature" in lowered
    )


def _redact_value(found: re.Match[str]) -> str:
    value = found[2]
    quote = value[:2] if value.startswith('\\"') else value[0] if value[0] in "\"'" else ""
    return f"{found[1]}{quote}{REDACTED}{quote}"


def _mask_numbers(text: str) -> str:
    text = CHINESE_ID.sub(lambda found: _masked_id(found[0]) if _is_chinese_id(found[0]) else found[0], text)
    text = CHINESE_ID_OLD.sub(lambda found: _masked_id(found[0]), text)
    text = CHINESE_MOBILE.sub(r"\1****\2", text)
    text = OTHER_ID.sub(lambda found: _masked_id(found[0]), text)
    text = CARD.sub(lambda found: _masked_id(found[0]) if _is_card(found[0]) else found[0], text)
    return PHONE.sub(lambda found: f"{REDACTED}{found[1] or found[2]}", text)


def _masked_id(number: str) -> str:
    return f"{number[:2]}{REDACTED}{number[-2:]}"


def _is_chinese_id(number: str) -> bool:
    total = sum(weight * int(digit) for weight, digit in zip(ID_WEIGHTS, number, strict=False))
    return ID_CHECKS[total % 11] == number[-1].upper()


def _is_card(number: str) -> bool:
    """Whether the number passes the Luhn check of payment cards."""
    digits = [int(digit) for digit in reversed(number) if digit.isdigit()]
    doubled = sum(sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return (doubled + sum(digits[::2])) % 10 == 0
