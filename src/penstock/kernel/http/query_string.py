"""Query parameters that a route does not declare.

A mistyped filter would silently widen a request: `?tag=fr` instead of `?tags=fr` returns everything. So a route refuses
unknown parameters and suggests the declared name that was probably meant. Routes that existing clients call ignored
unknown parameters before, so these answer with a `Warning` header instead (`UnknownQuery`).

The declared names are collected once per route (`routes.py`). A request pays for a comparison of its parameter names,
and only if it has a query string.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from itertools import islice
from urllib.parse import unquote_plus

from fastapi.dependencies.utils import get_flat_params
from fastapi.params import ParamTypes
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute
from starlette.types import Scope

from penstock.kernel.http.fields import BadField
from penstock.kernel.http.headers import add_warning
from penstock.kernel.http.problems import BadFields
from penstock.kernel.logs import clean

DECLARED = "penstock.query"  # key of the route's `DeclaredQuery` in the scope
MAX_REPORTED = 5  # unknown parameters of one request that are named
MAX_NAME_LENGTH = 50
MAX_LISTED = 30  # declared names that are listed where none resembles the unknown one


class UnknownQuery(StrEnum):
    """How a route treats unknown parameters. A route class sets it as `unknown_query`; the default is `REFUSE`."""

    REFUSE = "refuse"
    WARN = "warn"
    REFUSE_SIMILAR = "refuse_similar"  # refuse what resembles a declared name, warn of everything else


@dataclass(frozen=True, kw_only=True)
class DeclaredQuery:
    """The query parameters of a route."""

    names: frozenset[str]
    raw_names: frozenset[bytes]
    unknown: UnknownQuery


def declared_query(route: BaseRoute) -> DeclaredQuery | None:
    """The query parameters that a route declares, to the framework or in its `openapi_extra`."""
    if not isinstance(route, APIRoute):
        return None
    fields = [field for field in get_flat_params(route.dependant) if _location(field.field_info) is ParamTypes.query]
    described = (route.openapi_extra or {}).get("parameters", ())
    names = frozenset(field.alias for field in fields) | {one["name"] for one in described if one["in"] == "query"}
    return DeclaredQuery(
        names=names,
        raw_names=frozenset(name.encode() for name in names),
        unknown=getattr(route, "unknown_query", UnknownQuery.REFUSE),
    )


def _location(declared: object) -> ParamTypes | None:
    return getattr(declared, "in_", None)


def check_query(scope: Scope) -> None:
    """Refuse parameters that the matched route does not declare, or add a warning to the response."""
    query_string: bytes = scope["query_string"]
    if not query_string:
        return
    declared: DeclaredQuery | None = scope.get(DECLARED)
    if declared is None or declared.raw_names.issuperset(_raw_names(query_string)):
        return
    given = (unquote_plus(name.decode("latin-1")) for name in _raw_names(query_string))
    unknown = list(islice(dict.fromkeys(name for name in given if name not in declared.names), MAX_REPORTED))
    similar = {name: similar_name(name, declared.names) for name in unknown}
    if unknown:
        _report(scope, declared, similar)


def _report(scope: Scope, declared: DeclaredQuery, similar: dict[str, str | None]) -> None:
    refused = similar
    if declared.unknown is UnknownQuery.WARN:
        refused = {}
    elif declared.unknown is UnknownQuery.REFUSE_SIMILAR:
        refused = {name: meant for name, meant in similar.items() if meant is not None}
    if refused:
        raise BadFields(errors=[_bad_field(name, meant, declared.names) for name, meant in refused.items()])
    for name, meant in similar.items():
        suggestion = f"; did you mean {meant}?" if meant else ""
        add_warning(scope, f"Unknown query parameter ignored: {clean(name, MAX_NAME_LENGTH)}{suggestion}")


def _raw_names(query_string: bytes) -> Iterable[bytes]:
    return [part.partition(b"=")[0] for part in query_string.split(b"&") if part]


def similar_name(name: str, names: frozenset[str]) -> str | None:
    """The declared name that was probably meant: `tag` for `tags`, `page_size` for `pageSize`."""
    by_letters = {letters_of(declared): declared for declared in sorted(names)}
    found = get_close_matches(letters_of(name[:MAX_NAME_LENGTH]), by_letters, n=1, cutoff=0.7)
    return by_letters[found[0]] if found else None


def letters_of(name: str) -> str:
    """A name without case and separators: `page_size` and `pageSize` are spellings of one name."""
    return name.lower().translate({ord(mark): None for mark in "_-[] "})


def _bad_field(name: str, meant: str | None, names: frozenset[str]) -> BadField:
    listed = ", ".join(sorted(names)[:MAX_LISTED])
    if meant is not None:
        remark, remark_zh = f"did you mean {meant}?", f"是否想用 {meant}？"
    elif listed:
        remark, remark_zh = f"expected one of {listed}", f"应为 {listed} 之一"
    else:
        remark, remark_zh = "this route has none", "此路由没有查询参数"
    return BadField(
        field=clean(name, MAX_NAME_LENGTH),
        reason=f"Unknown query parameter; {remark}",
        reason_zh=f"未知的查询参数；{remark_zh}",
    )
