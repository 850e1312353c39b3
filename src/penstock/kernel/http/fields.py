"""Fields of requests: types that modules share, and Pydantic's validation errors as names and readable reasons.

The value that was sent is never echoed: it may be a secret. Reasons are Pydantic's, except for patterns; common ones
have a Chinese text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime

from penstock.kernel.logs import clean

MAX_ERRORS = 50
MAX_CHARACTERS = 200  # of a name or a reason
NO_CONTROLS = r"^[^\x00-\x1f\x7f]+$"
NO_CONTROLS_OR_EMPTY = r"^[^\x00-\x1f\x7f]*$"
_NO_CONTROLS = ("Must not contain control characters such as line breaks", "不得包含换行等控制字符")
# What a pattern of a field asks for, in English and Chinese: a regular expression is no answer. A test finds every
# pattern of the API here.
PATTERN_REASONS = {
    NO_CONTROLS: _NO_CONTROLS,
    NO_CONTROLS_OR_EMPTY: _NO_CONTROLS,
    r"^((10|[1-9])(-(10|[1-9]))?|high|medium|low)$": (
        "Must be 1 to 10, a range such as 3-7, or high, medium or low",
        "应为 1 到 10、范围（如 3-7），或 high、medium、low",
    ),
    r"^[A-Za-z0-9_]+$": ("May contain only letters, digits and underscores", "只能包含字母、数字和下划线"),
    r"^[A-Za-z0-9_-]+$": (
        "May contain only letters, digits, underscores and hyphens",
        "只能包含字母、数字、下划线和连字符",
    ),
}
OTHER_PATTERN = ("Has characters that are not allowed here, or not in the expected form", "格式不符")
LOCATIONS = frozenset(("body", "query", "path", "header", "cookie"))
NOT_AN_OBJECT = frozenset(("model_attributes_type", "model_type", "dict_type", "list_type", "dataclass_type"))

# By Pydantic's error type, where its own text is not for people.
REASONS = {"timezone_aware": "Must have a time zone, such as 2026-01-01T08:00:00Z"}
# By Pydantic's error type; names in braces are from the error's context.
CHINESE_REASONS = {
    "blank": "不能为空",
    "bool_parsing": "应为布尔值",
    "bool_type": "应为布尔值",
    "date_from_datetime_parsing": "应为日期",
    "date_parsing": "应为日期",
    "datetime_from_date_parsing": "应为日期时间",
    "datetime_parsing": "应为日期时间",
    "datetime_type": "应为日期时间",
    "dict_type": "应为对象",
    "duplicate": "不能重复",
    "enum": "应为 {expected} 之一",
    "extra_forbidden": "不认识此字段",
    "float_parsing": "应为数字",
    "float_type": "应为数字",
    "greater_than": "应大于 {gt}",
    "greater_than_equal": "应不小于 {ge}",
    "int_from_float": "应为整数",
    "int_parsing": "应为整数",
    "int_type": "应为整数",
    "less_than": "应小于 {lt}",
    "less_than_equal": "应不大于 {le}",
    "list_type": "应为数组",
    "literal_error": "应为 {expected} 之一",
    "missing": "缺少此字段",
    "model_attributes_type": "应为对象",
    "timezone_aware": "须带时区，例如 2026-01-01T08:00:00Z",
    "string_too_long": "最多 {max_length} 个字符",
    "string_too_short": "至少 {min_length} 个字符",
    "string_type": "应为字符串",
    "too_long": "最多 {max_length} 项",
    "too_short": "至少 {min_length} 项",
    "url_parsing": "应为网址",
}


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("the time is out of range") from error


Moment = Annotated[AwareDatetime, AfterValidator(_in_utc)]  # a time with a zone


@dataclass(frozen=True, kw_only=True)
class BadField:
    """An invalid field and the reason."""

    field: str
    reason: str
    reason_zh: str

    def shown(self, language: str) -> dict[str, str]:
        """The field as a response shows it."""
        return {"field": self.field, "reason": self.reason if language == "en" else self.reason_zh}


def bad_fields(found: Sequence[Mapping[str, Any]]) -> list[BadField]:
    """Pydantic's errors, field by field."""
    return [_bad_field(error) for error in found[:MAX_ERRORS]]


def is_not_json(found: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the body as a whole is invalid: not JSON, or bytes because its content type is not JSON."""
    return any(_is_bytes(error) or error["type"] == "json_invalid" for error in found)


def _is_bytes(error: Mapping[str, Any]) -> bool:
    return tuple(error["loc"]) == ("body",) and error["type"] in NOT_AN_OBJECT and isinstance(error.get("input"), bytes)


def _bad_field(error: Mapping[str, Any]) -> BadField:
    if error["type"] == "string_pattern_mismatch":
        pattern = (error.get("ctx") or {}).get("pattern", "")
        reason, chinese = PATTERN_REASONS.get(pattern, OTHER_PATTERN)
        return BadField(field=_name(error["loc"]), reason=reason, reason_zh=chinese)
    reason = clean(REASONS.get(error["type"]) or _sentence(str(error["msg"])), MAX_CHARACTERS)
    return BadField(field=_name(error["loc"]), reason=reason, reason_zh=_chinese(error) or reason)


def _sentence(text: str) -> str:
    """The text of a validator of ours, without what Pydantic puts before it."""
    said = text.removeprefix("Value error, ")
    return said[:1].upper() + said[1:]


def _name(location: Sequence[str | int]) -> str:
    """`("body", "items", 0, "name")` as `items.0.name`; a body that is invalid as a whole is `body`."""
    inner = location[1:] if len(location) > 1 and location[0] in LOCATIONS else location
    return clean(".".join(map(str, inner)), MAX_CHARACTERS)


def _chinese(error: Mapping[str, Any]) -> str:
    template = CHINESE_REASONS.get(error["type"], "")
    try:
        return template.format_map(error.get("ctx") or {})
    except KeyError:
        return ""
