"""What clients tell of tasks, in whatever call: words in any case, texts within their bounds."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, StringConstraints, model_validator

LONGEST_CONTENT = 100_000


def _upper(word: Any) -> Any:
    return word.strip().upper() if isinstance(word, str) else word


RoleWord = Annotated[Literal["USER", "ASSISTANT"], BeforeValidator(_upper)]
Content = Annotated[str, StringConstraints(max_length=LONGEST_CONTENT)]
Token = Annotated[str, Field(max_length=64)]


class Part(BaseModel):
    """A part of what is told. What is null is as good as absent."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        return {name: value for name, value in given.items() if value is not None} if isinstance(given, dict) else given
