"""The one way to make a validator of a schema that came from outside.

Nothing is fetched. Patterns are Rust's, which take a time that grows only with the text, and each is bounded in memory.
What such a validator is put to still runs in the sandbox: a schema may lead into itself.
"""

from typing import Any

import jsonschema_rs

PATTERN_BYTES = 100_000  # of memory, for one pattern


def bounded_validator(schema: Any) -> jsonschema_rs.Validator:
    """A validator for a schema of any draft; raises ValidationError or ReferencingError where it is none."""
    patterns = jsonschema_rs.RegexOptions(size_limit=PATTERN_BYTES, dfa_size_limit=PATTERN_BYTES)
    return jsonschema_rs.validator_for(schema, pattern_options=patterns, offline=True)
