"""Who may do what: scopes, the caller, and what can be wrong with one."""

from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """What a caller may do; each scope includes those before it."""

    READ = "read"  # query, and pull
    WRITE = "write"  # also push
    ADMIN = "admin"  # everything, of everyone

    def covers(self, needed: "Scope") -> bool:
        """Whether this scope is enough for what is needed."""
        order = list(Scope)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who is calling. `name` is how records show them."""

    name: str
    user_id: int
    scope: Scope
    merchant_id: int | None = None
    role: str | None = None
    project: str | None = None  # bound to one project of the tasks room: opens nothing else
    key_id: str | None = None

    @property
    def is_admin(self) -> bool:
        """Whether they see everyone's things."""
        return self.scope is Scope.ADMIN

    @property
    def tenant(self) -> str:
        """Whose limits they share: their merchant's, or their own."""
        return f"merchant:{self.merchant_id}" if self.merchant_id is not None else f"user:{self.user_id}"

    @property
    def audiences(self) -> tuple[str, ...]:
        """The event audiences they belong to."""
        own = [f"user:{self.user_id}"]
        if self.merchant_id is not None:
            own.append(f"merchant:{self.merchant_id}")
        if self.project is not None:
            return (f"project:{self.project}",)
        return tuple(own)
