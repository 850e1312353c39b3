"""Routes of rules: manage them and their versions, and try one on a sample."""

from typing import Annotated, Any

from fastapi import status
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from penstock.access.domain import MAX_ID, Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.access.idempotent import IdempotentHere
from penstock.etl import rules
from penstock.etl.api import actions
from penstock.etl.api.params import DepsParam, Limit, Offset, RuleId, error_responses, etl_router
from penstock.etl.api.shapes import SCHEMA, RulePage, RuleReview, RuleVersions, RuleView, next_offset, rule_view
from penstock.etl.deps import Deps
from penstock.etl.domain import Mode, ReviewPolicy, Rule, RuleBody, Strategy
from penstock.etl.dry_run import MAX_SAMPLE_CHARS, RuleSample
from penstock.etl.rule_validation import MAX_DESCRIPTION, MAX_NAME, MAX_PROMPT

router = etl_router()


def _none_to_empty_string(given: object) -> object:
    return "" if given is None else given


def _none_to_empty_object(given: object) -> object:
    return {} if given is None else given


def _empty_object_to_none(given: object) -> object:
    return None if given == {} else given


Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_NAME)]
Description = Annotated[str, BeforeValidator(_none_to_empty_string), Field(max_length=MAX_DESCRIPTION)]
Schema = Annotated[
    dict[str, Any] | None,
    BeforeValidator(_empty_object_to_none),
    Field(
        description="JSON Schema of type object. No $ref may point outside. "
        "With postprocess_mode skip it is optional, may be any object, and is ignored."
    ),
]
Prompt = Annotated[
    str | None, Field(max_length=MAX_PROMPT, description="System prompt of the model; a built-in one by default.")
]
ModeField = Annotated[
    Mode, Field(description="llm: a language model; fields: labels and tables of the document; skip: none.")
]
StrategyField = Annotated[
    Strategy | None, Field(description="How the document is sent to the model; by default chosen by its length.")
]
Options = Annotated[
    dict[str, Any], BeforeValidator(_none_to_empty_object), Field(description="Options of the post-processor.")
]


ReviewField = Annotated[
    RuleReview | None,
    Field(description="When a person reviews a task of this rule, and where; setting it needs the scope admin."),
]


class NewRule(BaseModel):
    """A rule to be created."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"name": "Invoices", "json_schema": SCHEMA, "postprocess_mode": "fields"}},
    )

    name: Name
    description: Description = ""
    json_schema: Schema = None
    system_prompt: Prompt = None
    postprocess_mode: ModeField = Mode.LLM
    postprocess_strategy: StrategyField = None
    options: Options = Field(default_factory=dict)
    review: ReviewField = None


class RuleChanges(BaseModel):
    """Fields to change; omitted fields stay as they are."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"description": "For the archive."}})

    name: Name = ""
    description: Description = ""
    json_schema: Schema = None
    system_prompt: Prompt = None
    postprocess_mode: ModeField = Mode.LLM
    postprocess_strategy: StrategyField = None
    options: Options = Field(default_factory=dict)
    review: ReviewField = None


class TrySample(BaseModel):
    """Input of a dry run: a text, or a task whose OCR is done."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"markdown": "Invoice No.: 2026-17\n\nTotal: 90.00"}}
    )

    markdown: str | None = Field(default=None, min_length=1, max_length=MAX_SAMPLE_CHARS)
    task_id: int | None = Field(default=None, ge=1, le=MAX_ID)

    @model_validator(mode="after")
    def _require_exactly_one(self) -> "TrySample":
        if (self.markdown is None) == (self.task_id is None):
            raise PydanticCustomError("one_of", "Expected either markdown or task_id")
        return self


class PlaceView(BaseModel):
    """A citation: where a value is in the document."""

    pointer: str = Field(description="A JSON Pointer into the value.")
    grounded: bool = Field(description="Whether the value was found in the document.")
    page: int | None = None
    box: tuple[float, float, float, float] | None = Field(default=None, description="Left, top, right, bottom.")
    text: str | None = Field(default=None, description="The text there.")


class Tried(BaseModel):
    """The result of a dry run. Nothing is stored."""

    rule_id: int
    version: int
    strategy: str
    value: Any
    places: list[PlaceView]
    usage: dict[str, Any] = Field(description="Token usage and cost of the model; empty without a model.")


@router.get("/rules", summary="List rules", **requires(Scope.READ))
async def list_rules(caller: CurrentCaller, deps: DepsParam, limit: Limit = 100, offset: Offset = 0) -> RulePage:
    """The caller's own rules and the system rules, the built-in default first; an admin sees everyone's."""
    found = await actions.list_rules(deps, caller, limit=limit + 1, offset=offset)
    total = await actions.count_rules(deps, caller)
    return RulePage(
        rules=_views(deps, found[:limit]),
        total=min(total, actions.MAX_TOTAL),
        total_is_exact=total <= actions.MAX_TOTAL,
        limit=limit,
        offset=offset,
        next_offset=next_offset(found, limit=limit, offset=offset),
    )


@router.post(
    "/rules",
    status_code=status.HTTP_201_CREATED,
    summary="Create a rule",
    responses=error_responses({409: "The caller has the maximum number of rules."}),
    **requires(Scope.WRITE),
)
async def add_rule(new: NewRule, caller: CurrentCaller, deps: DepsParam, request: IdempotentHere) -> RuleView:
    """The response contains its rule_id."""
    return _view(deps, await actions.add_rule(deps, caller, RuleBody(**_values(new)), request=request))


@router.get("/rules/{rule_id}", summary="Get a rule", **requires(Scope.READ))
async def get_rule(rule_id: RuleId, caller: CurrentCaller, deps: DepsParam) -> RuleView:
    """The current version."""
    return _view(deps, await actions.get_rule(deps, caller, rule_id))


@router.put(
    "/rules/{rule_id}",
    summary="Change a rule",
    responses=error_responses({409: "It was changed concurrently, or has the maximum number of versions."}),
    **requires(Scope.WRITE),
)
async def change_rule(rule_id: RuleId, changes: RuleChanges, caller: CurrentCaller, deps: DepsParam) -> RuleView:
    """Creates a new version for future tasks; omitted fields stay as they are."""
    return _view(deps, await actions.change_rule(deps, caller, rule_id, _values(changes)))


@router.delete(
    "/rules/{rule_id}", status_code=status.HTTP_204_NO_CONTENT, summary="Delete a rule", **requires(Scope.WRITE)
)
async def remove_rule(rule_id: RuleId, caller: CurrentCaller, deps: DepsParam) -> None:
    """Tasks that use it keep their version."""
    await actions.remove_rule(deps, caller, rule_id)


@router.get("/rules/{rule_id}/versions", summary="List the versions of a rule", **requires(Scope.READ))
async def list_rule_versions(
    rule_id: RuleId, caller: CurrentCaller, deps: DepsParam, limit: Limit = 20, offset: Offset = 0
) -> RuleVersions:
    """Latest version first."""
    async with deps.db.read() as tx:
        found = await rules.list_versions(tx, deps, caller, rule_id, limit=limit + 1, offset=offset)
    return RuleVersions(
        versions=_views(deps, found[:limit]),
        limit=limit,
        offset=offset,
        next_offset=next_offset(found, limit=limit, offset=offset),
    )


@router.post(
    "/rules/{rule_id}/try",
    summary="Try a rule on a sample",
    responses=error_responses({409: "The task has no OCR result."}),
    **requires(Scope.WRITE),
)
async def try_rule(rule_id: RuleId, sample: TrySample, caller: CurrentCaller, deps: DepsParam) -> Tried:
    """Runs the rule's post-processor on a text, or on the OCR result of a task. Nothing is stored."""
    given = RuleSample(markdown=sample.markdown, task_id=sample.task_id)
    rule, extracted = await actions.try_rule(deps, caller, rule_id, given)
    places = [
        PlaceView(**{name: getattr(place, name) for name in PlaceView.model_fields}) for place in extracted.citations
    ]
    return Tried(
        rule_id=rule.id,
        version=rule.version,
        strategy=extracted.strategy,
        value=extracted.value,
        places=places,
        usage=extracted.usage,
    )


def _values(given: NewRule | RuleChanges) -> dict[str, Any]:
    values = {name: getattr(given, name) for name in given.model_fields_set}
    if values.get("review") is not None:
        values["review"] = ReviewPolicy(**dict(values["review"]))
    return values


def _views(deps: Deps, found: list[Rule]) -> list[RuleView]:
    return [_view(deps, rule) for rule in found]


def _view(deps: Deps, rule: Rule) -> RuleView:
    return rule_view(rule, default_id=deps.config.default_rule_id)
