"""State machines as tables of verbs, which print their own lifecycle page."""

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Generic, TypeVar

from penstock.kernel.errors import Conflict

State = TypeVar("State", bound=StrEnum)


class WrongState(Conflict):
    """The current state does not allow the verb."""

    code = "WRONG_STATE"
    message = "Cannot {verb}: the {machine} is {state} and must be {allowed}."
    message_zh = "处于 {state} 状态的 {machine} 不能执行 {verb}；必须处于 {allowed}。"
    hint = "Read it again: it may have changed in the meantime."
    hint_zh = "请重新读取：其间可能已发生变更。"


class Machine(Generic[State]):
    """A state machine: `{verb: (allowed source states, target state)}`.

    `words` describes every state, for the lifecycle page.
    """

    def __init__(
        self,
        name: str,
        verbs: Mapping[str, tuple[Collection[State], State]],
        *,
        start: State,
        words: Mapping[State, str],
    ) -> None:
        self.name = name
        self.start = start
        self.words = dict(words)
        self.verbs = {verb: (frozenset(sources), target) for verb, (sources, target) in verbs.items()}
        self._check()

    @property
    def states(self) -> tuple[State, ...]:
        """Every state, in the order of `words`."""
        return tuple(self.words)

    @property
    def final(self) -> frozenset[State]:
        """The states that no verb leaves."""
        left = frozenset[State]().union(*(sources for sources, _ in self.verbs.values()))
        return frozenset(self.words) - left

    def may(self, verb: str, state: State) -> bool:
        """Whether the verb is allowed in that state."""
        return state in self.verbs[verb][0]

    def move(self, verb: str, state: State) -> State:
        """The state after the verb; raises `WrongState`."""
        sources, target = self.verbs[verb]
        if state not in sources:
            allowed = " or ".join(sorted(source.value for source in sources))
            raise WrongState(machine=self.name, state=state.value, verb=verb, allowed=allowed)
        return target

    def page(self) -> str:
        """The lifecycle page: states, verbs and a diagram, as markdown."""
        lines = [f"## {self.name}", "", "```mermaid", "stateDiagram-v2", f"    [*] --> {self.start}"]
        for verb, (sources, target) in self.verbs.items():
            lines += [f"    {source} --> {target}: {verb}" for source in self.states if source in sources]
        lines += [f"    {state} --> [*]" for state in self.states if state in self.final]
        lines += ["```", "", "| state | what it means |", "|---|---|"]
        lines += [f"| {state} | {sentence} |" for state, sentence in self.words.items()]
        lines += ["", "| verb | from | to |", "|---|---|---|"]
        for verb, (sources, target) in self.verbs.items():
            froms = ", ".join(state for state in self.states if state in sources)
            lines.append(f"| {verb} | {froms} | {target} |")
        return "\n".join(lines) + "\n"

    def _check(self) -> None:
        if idle := [verb for verb, (sources, _) in self.verbs.items() if not sources]:
            raise ValueError(f"machine {self.name}: verbs without a source state: {idle}")
        mentioned = set(type(self.start)).union(*(sources | {target} for sources, target in self.verbs.values()))
        if unknown := mentioned - set(self.words):
            raise ValueError(f"machine {self.name}: states without a description: {sorted(unknown)}")
        if lost := set(self.words) - self._reached():
            raise ValueError(f"machine {self.name}: unreachable states: {sorted(lost)}")

    def _reached(self) -> set[State]:
        reached, before = {self.start}, 0
        while len(reached) > before:
            before = len(reached)
            reached |= {target for sources, target in self.verbs.values() if sources & reached}
        return reached
