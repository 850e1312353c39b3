"""Drop nulls that only mean "absent".

Models are told to answer null where the document has no value, and strict mode requires every property. The schema of
the rule decides which of these nulls stay: a property that is optional and not nullable is dropped.
"""

from dataclasses import dataclass, field
from typing import Any

from penstock.kernel.json_object import JsonObject
from penstock.kernel.json_schema.walk import admits_null, all_of_schemas, as_dict, as_list, matching_branches


def drop_optional_nulls(value: Any, schema: JsonObject) -> Any:
    """The value without the nulls of optional properties that the schema does not accept."""
    return _drop(schema, value, [schema])


@dataclass(frozen=True, kw_only=True)
class _PropertySchemas:
    """The schemas of one property: those that always apply, and those of each branch."""

    always: list[Any] = field(default_factory=list)
    by_branch: list[list[Any]] = field(default_factory=list)
    is_required: bool = False

    @property
    def schemas(self) -> list[Any]:
        return [*self.always, *(part for parts in self.by_branch for part in parts)]


def _drop(root: JsonObject, value: Any, schemas: list[Any]) -> Any:
    if isinstance(value, dict):
        always, branches = _applicable_schemas(root, value, schemas)
        properties = {name: _property_schemas(name, always, branches) for name in value}
        return {
            name: _drop(root, inner, properties[name].schemas)
            for name, inner in value.items()
            if inner is not None or not _is_optional_null(root, properties[name])
        }
    if isinstance(value, list):
        always, branches = _applicable_schemas(root, value, schemas)
        applicable = [*always, *(schema for branch in branches for schema in branch)]
        return [
            _drop(root, inner, [_item_schema(schema, at) for schema in applicable]) for at, inner in enumerate(value)
        ]
    return value


def _applicable_schemas(
    root: JsonObject, value: Any, schemas: list[Any]
) -> tuple[list[JsonObject], list[list[JsonObject]]]:
    always = [part for schema in schemas for part in all_of_schemas(root, schema)]
    return always, matching_branches(root, always, value)


def _property_schemas(name: str, always: list[JsonObject], branches: list[list[JsonObject]]) -> _PropertySchemas:
    required_by = [any(name in as_list(schema.get("required")) for schema in branch) for branch in branches]
    required = any(name in as_list(schema.get("required")) for schema in always) or (
        bool(required_by) and all(required_by)
    )
    by_branch = [parts for branch in branches if (parts := _schemas_of(name, branch))]
    return _PropertySchemas(always=_schemas_of(name, always), by_branch=by_branch, is_required=required)


def _schemas_of(name: str, schemas: list[JsonObject]) -> list[Any]:
    named = [as_dict(schema.get("properties"))[name] for schema in schemas if name in as_dict(schema.get("properties"))]
    return named or [
        schema["additionalProperties"] for schema in schemas if as_dict(schema.get("additionalProperties"))
    ]


def _is_optional_null(root: JsonObject, found: _PropertySchemas) -> bool:
    if found.is_required or not found.schemas:
        return False
    by_always = all(admits_null(root, part) for part in found.always)
    by_branch = not found.by_branch or any(all(admits_null(root, part) for part in parts) for parts in found.by_branch)
    return not (by_always and by_branch)


def _item_schema(schema: JsonObject, at: int) -> Any:
    items = schema.get("items")
    first = as_list(items) or as_list(schema.get("prefixItems"))
    if at < len(first):
        return first[at]
    return schema.get("additionalItems") if isinstance(items, list) else items
