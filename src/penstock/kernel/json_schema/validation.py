"""Validators for JSON Schemas that users send, and the violations that they find in a value.

References are never fetched. Patterns use Rust's regex engine, which runs in linear time, with a memory limit for each
pattern: no look-around, no back-references. A schema can be recursive, so it is compiled and applied in the sandbox,
unless `cost` has checked it.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote

import jsonschema_rs
import msgspec

from penstock.kernel.json_object import JsonObject
from penstock.kernel.json_schema.pointers import Tokens

PATTERN_BYTES = 100_000  # memory limit of one pattern
PATTERNS = jsonschema_rs.RegexOptions(size_limit=PATTERN_BYTES, dfa_size_limit=PATTERN_BYTES)
EMAILS = jsonschema_rs.EmailOptions(allow_display_text=False)  # "a@b.org", not "Ann <a@b.org>"
BASE_URI = "urn:penstock:schema"


class InvalidSchema(Exception):
    """Not a JSON Schema, with the reason and where in the schema it applies."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.message = str(getattr(error, "message", error))
        self.place: tuple[str | int, ...] = tuple(getattr(error, "instance_path", ()))


class Violation(NamedTuple):
    """Where a value violates which part of the schema, and how. The message may quote the value, of any length."""

    place: tuple[str | int, ...]
    rule: tuple[str | int, ...]
    message: str

    @property
    def key(self) -> tuple[Tokens, Tokens]:
        """What identifies the violation, whatever the value."""
        return tuple(map(str, self.place)), tuple(map(str, self.rule))


class SchemaValidator:
    """A compiled schema."""

    def __init__(self, compiled: jsonschema_rs.Validator) -> None:
        self._compiled = compiled

    def is_valid(self, value: Any) -> bool:
        """Whether a value satisfies the schema."""
        return self._compiled.is_valid(value)

    def find_violation(self, value: Any) -> Violation | None:
        """The first violation of a value, or None if it is valid."""
        try:
            self._compiled.validate(value)
        except jsonschema_rs.ValidationError as error:
            return _violation(error)
        return None

    def violations(self, value: Any) -> Iterator[Violation]:
        """All violations of a value, found one by one."""
        return map(_violation, self._compiled.iter_errors(value))


def compile_schema(schema: Any) -> SchemaValidator:
    """A validator for a schema of any draft. Raises `InvalidSchema`."""
    with _raising_invalid_schema():
        return SchemaValidator(jsonschema_rs.validator_for(schema, pattern_options=PATTERNS, offline=True))


def check_schema(schema: Any) -> None:
    """Compile a schema and apply it once, since some compile but recurse without end. For the sandbox only."""
    compile_schema(schema).is_valid({})


@lru_cache(maxsize=64)  # a request may have thousands of values for one schema
def masked_validator(schema_json: bytes) -> SchemaValidator:
    """A validator for a 2020-12 schema whose messages say "it" instead of quoting the value."""
    schema = msgspec.json.decode(schema_json)
    with _raising_invalid_schema():
        return SchemaValidator(
            jsonschema_rs.Draft202012Validator(schema, pattern_options=PATTERNS, offline=True, mask="it")
        )


class PartValidators:
    """Validators for the parts of one 2020-12 schema, formats included. For the sandbox only.

    Here patterns may look around: the engine backtracks, up to a limit, after which a value does not match.
    """

    def __init__(self, schema: JsonObject) -> None:
        with _raising_invalid_schema():
            jsonschema_rs.Draft202012Validator(schema, offline=True)
            self._registry = jsonschema_rs.Registry([(BASE_URI, schema)])

    def validator(self, locations: Iterable[str]) -> SchemaValidator:
        """A validator for the value to which the subschemas at all of these pointers apply."""
        refs = [{"$ref": f"{BASE_URI}#{quote(location)}"} for location in locations]
        return SchemaValidator(
            jsonschema_rs.Draft202012Validator(
                {"allOf": refs},
                registry=self._registry,
                offline=True,
                validate_formats=True,
                email_options=EMAILS,
            )
        )


def _violation(error: jsonschema_rs.ValidationError) -> Violation:
    return Violation(tuple(error.instance_path), tuple(error.schema_path), error.message)


@contextmanager
def _raising_invalid_schema() -> Iterator[None]:
    try:
        yield
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise InvalidSchema(error) from error
