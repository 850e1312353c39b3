"""Rules over HTTP: what callers want made of their documents, in versions, and a rehearsal on a sample."""

from typing import Annotated, Any

from fastapi import status
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from penstock.access.domain import MOST_ID, Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.etl import rehearse, rules
from penstock.etl.api.parts import Limit, Offset, RuleId, ToolsHere, new_router, refusals
from penstock.etl.api.shapes import SCHEMA, RulePage, RuleVersions, RuleView, next_offset, rule_view
from penstock.etl.deps import Deps
from penstock.etl.domain import Mode, Rule, RuleBody, Strategy
from penstock.etl.rehearse import MOST_SAMPLE, Sample
from penstock.etl.schemas import MOST_DESCRIPTION, MOST_NAME, MOST_PROMPT

router = new_router()


def _or_nothing(given: object) -> object:
    return "" if given is None else given


def _or_empty(given: object) -> object:
    return {} if given is None else given


def _or_none(given: object) -> object:
    return None if given == {} else given


Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MOST_NAME)]
Description = Annotated[str, BeforeValidator(_or_nothing), Field(max_length=MOST_DESCRIPTION)]
Schema = Annotated[
    dict[str, Any] | None,
    BeforeValidator(_or_none),
    Field(description="A JSON Schema of type object; needed unless postprocess_mode is skip. No $ref leads outside."),
]
Prompt = Annotated[
    str | None, Field(max_length=MOST_PROMPT, description="What a model is told first; without it, a sentence of ours.")
]
HowMade = Annotated[Mode, Field(description="llm: a model; fields: labels and tables of the document; skip: nobody.")]
HowAsked = Annotated[Strategy | None, Field(description="How a model is asked; without it, by the length of the text.")]
Options = Annotated[dict[str, Any], BeforeValidator(_or_empty), Field(description="For the post-processor.")]


class NewRule(BaseModel):
    """A rule to be made."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"name": "Invoices", "json_schema": SCHEMA, "postprocess_mode": "fields"}},
    )

    name: Name
    description: Description = ""
    json_schema: Schema = None
    system_prompt: Prompt = None
    postprocess_mode: HowMade = Mode.LLM
    postprocess_strategy: HowAsked = None
    options: Options = Field(default_factory=dict)


class RuleChanges(BaseModel):
    """What is to be different; what is left out stays."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"description": "For the archive."}})

    name: Name = ""
    description: Description = ""
    json_schema: Schema = None
    system_prompt: Prompt = None
    postprocess_mode: HowMade = Mode.LLM
    postprocess_strategy: HowAsked = None
    options: Options = Field(default_factory=dict)


class TrySample(BaseModel):
    """What to try a rule on: a text, or a task that was read already."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"markdown": "Invoice No.: 2026-17\n\nTotal: 90.00"}}
    )

    markdown: str | None = Field(default=None, min_length=1, max_length=MOST_SAMPLE)
    task_id: int | None = Field(default=None, ge=1, le=MOST_ID)

    @model_validator(mode="after")
    def _one_of_them(self) -> "TrySample":
        if (self.markdown is None) == (self.task_id is None):
            raise PydanticCustomError("one_of", "Either markdown or task_id is wanted")
        return self


class PlaceView(BaseModel):
    """Where a value came from."""

    pointer: str = Field(description="A JSON Pointer into the value.")
    grounded: bool = Field(description="Whether the value stands in the document.")
    page: int | None = None
    box: tuple[float, float, float, float] | None = Field(default=None, description="Left, top, right, bottom.")
    text: str | None = Field(default=None, description="What stands there.")


class Tried(BaseModel):
    """What a rule makes of a sample. None of it is kept."""

    rule_id: int
    version: int
    strategy: str
    value: Any
    places: list[PlaceView]
    usage: dict[str, Any] = Field(description="What a model cost; empty where there was none.")


@router.get("/rules", summary="Rules that can be used", **requires(Scope.READ))
async def list_rules(caller: CurrentCaller, tools: ToolsHere, limit: Limit = 100, offset: Offset = 0) -> RulePage:
    """The caller's own and the system's, with the built-in default first; an admin sees everyone's."""
    found = await rules.list_rules(tools, caller, limit=limit + 1, offset=offset)
    return RulePage(
        rules=_views(tools, found[:limit]),
        limit=limit,
        offset=offset,
        next_offset=next_offset(found, limit=limit, offset=offset),
    )


@router.post(
    "/rules",
    status_code=status.HTTP_201_CREATED,
    summary="Make a rule",
    responses=refusals({409: "The caller has as many as may be."}),
    **requires(Scope.WRITE),
)
async def add_rule(new: NewRule, caller: CurrentCaller, tools: ToolsHere) -> RuleView:
    """The answer has its number, rule_id."""
    return _view(tools, await rules.add(tools, caller, RuleBody(**_values(new))))


@router.get("/rules/{rule_id}", summary="One rule", **requires(Scope.READ))
async def get_rule(rule_id: RuleId, caller: CurrentCaller, tools: ToolsHere) -> RuleView:
    """As it is now."""
    return _view(tools, await rules.get_rule(tools, caller, rule_id))


@router.put(
    "/rules/{rule_id}",
    summary="Change a rule",
    responses=refusals({409: "Somebody else changed it meanwhile, or it has as many versions as may be."}),
    **requires(Scope.WRITE),
)
async def change_rule(rule_id: RuleId, changes: RuleChanges, caller: CurrentCaller, tools: ToolsHere) -> RuleView:
    """Makes a new version, for tasks to come; what is left out stays as it is."""
    return _view(tools, await rules.change(tools, caller, rule_id, _values(changes)))


@router.delete(
    "/rules/{rule_id}", status_code=status.HTTP_204_NO_CONTENT, summary="Delete a rule", **requires(Scope.WRITE)
)
async def remove_rule(rule_id: RuleId, caller: CurrentCaller, tools: ToolsHere) -> None:
    """Tasks that began with it end with it."""
    await rules.remove(tools, caller, rule_id)


@router.get("/rules/{rule_id}/versions", summary="What a rule has said", **requires(Scope.READ))
async def list_rule_versions(
    rule_id: RuleId, caller: CurrentCaller, tools: ToolsHere, limit: Limit = 20, offset: Offset = 0
) -> RuleVersions:
    """The latest version first."""
    found = await rules.list_versions(tools, caller, rule_id, limit=limit + 1, offset=offset)
    return RuleVersions(
        versions=_views(tools, found[:limit]),
        limit=limit,
        offset=offset,
        next_offset=next_offset(found, limit=limit, offset=offset),
    )


@router.post(
    "/rules/{rule_id}/try",
    summary="Try a rule on a sample",
    responses=refusals({409: "The task was not read."}),
    **requires(Scope.WRITE),
)
async def try_rule(rule_id: RuleId, sample: TrySample, caller: CurrentCaller, tools: ToolsHere) -> Tried:
    """Runs the rule's post-processor on a text, or on what was read for a task. Nothing is kept."""
    given = Sample(markdown=sample.markdown, task_id=sample.task_id)
    rule, shaped = await rehearse.try_rule(tools, caller, rule_id, given)
    places = [
        PlaceView(**{name: getattr(place, name) for name in PlaceView.model_fields}) for place in shaped.citations
    ]
    return Tried(
        rule_id=rule.id,
        version=rule.version,
        strategy=shaped.strategy,
        value=shaped.value,
        places=places,
        usage=shaped.usage,
    )


def _values(given: NewRule | RuleChanges) -> dict[str, Any]:
    return {name: getattr(given, name) for name in given.model_fields_set}


def _views(tools: Deps, found: list[Rule]) -> list[RuleView]:
    return [_view(tools, rule) for rule in found]


def _view(tools: Deps, rule: Rule) -> RuleView:
    return rule_view(rule, default_id=tools.terms.default_rule_id)
