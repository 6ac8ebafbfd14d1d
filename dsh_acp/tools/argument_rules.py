"""What the models of arguments share: how a rule is broken, and what is forgiven."""

from typing import Any, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from dsh_acp import jsontext


def rule(text: str) -> PydanticCustomError:
    """A broken rule, told to the model in these words."""
    return PydanticCustomError("rule", cast(Any, text))


def filled(name: str) -> AfterValidator:
    """Says that `name` must not be blank."""

    def check(value: str) -> str:
        if not value.strip():
            raise rule(f"{name} must be a non-empty string")
        return value

    return AfterValidator(check)


def positive(name: str) -> AfterValidator:
    """Says that `name` counts from 1."""

    def check(value: int | None) -> int | None:
        if value is not None and value < 1:
            raise rule(f"{name} must be a positive integer")
        return value

    return AfterValidator(check)


def said(name: str) -> AfterValidator:
    """As `filled`, in the words of tools that run something."""

    def check(value: str) -> str:
        if not value.strip():
            raise rule(f"invalid {name}: expected a non-empty string")
        return value

    return AfterValidator(check)


class Arguments(BaseModel):
    """Undeclared keys are accepted and dropped."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        optional = {key for key, field in cls.model_fields.items() if not field.is_required()}
        given = cast(dict[str, Any], value)
        return {k: item for k, item in given.items() if item is not None or k not in optional}


def list_as_text(value: Any) -> Any:
    """A list that a model wrote as its JSON text, as a list."""
    if isinstance(value, str):
        try:
            parsed = jsontext.loads(value.encode())
        except jsontext.DecodeError:
            return value
        return cast(Any, parsed) if isinstance(parsed, list) else value
    return value
