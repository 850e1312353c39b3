"""Validators for JSON Schemas that users send.

References are never fetched. Patterns use Rust's regex engine, which runs in linear time, with a memory limit for each
pattern. Validation still runs in the sandbox, because a schema can be recursive.
"""

from typing import Any

import jsonschema_rs

PATTERN_BYTES = 100_000  # memory limit of one pattern


def bounded_validator(schema: Any) -> jsonschema_rs.Validator:
    """A validator for a schema of any draft. Raises ValidationError or ReferencingError for an invalid schema."""
    patterns = jsonschema_rs.RegexOptions(size_limit=PATTERN_BYTES, dfa_size_limit=PATTERN_BYTES)
    return jsonschema_rs.validator_for(schema, pattern_options=patterns, offline=True)
