"""A result is validated against the JSON Schema (`result_schema`) of its task, in this process: a schema is stored only
if it is cheap to apply (see `kernel/json_schema/cost.py`)."""

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.kernel.json_schema.validation import masked_validator
from penstock.tasks.errors import BadTask

MAX_REASON_LENGTH = 200


def find_result_problem(schema: Mapping[str, Any], result: object) -> str | None:
    """Where a result violates an accepted schema, or None if it is valid. The result itself is not quoted."""
    violation = masked_validator(msgspec.json.encode(schema)).find_violation(result)
    if violation is None:
        return None
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in violation.place)
    return f"{path.lstrip('.') or 'the result'}: {violation.message}"[:MAX_REASON_LENGTH]


def validate_result(schema: Mapping[str, Any] | None, result: object, *, field: str = "result") -> None:
    """Validate a result against the schema of its task, if it has one. Raises `BadTask`."""
    problem = None if schema is None else find_result_problem(schema, result)
    if problem is not None:
        raise BadTask(field=field, reason=problem, reason_zh=f"不符合 result_schema：{problem}")
