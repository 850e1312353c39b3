"""What `machine.py` promises, on one small machine and on random ones."""

from dataclasses import dataclass
from enum import StrEnum
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.machine import Machine, WrongState


class Light(StrEnum):
    OFF = "off"
    ON = "on"
    BROKEN = "broken"


LIT = {Light.OFF: "It is dark.", Light.ON: "It shines.", Light.BROKEN: "It will never shine again."}
VERBS = {
    "switch on": ({Light.OFF}, Light.ON),
    "switch off": ({Light.ON}, Light.OFF),
    "smash": ({Light.OFF, Light.ON}, Light.BROKEN),
}
LIGHT = Machine("light", VERBS, start=Light.OFF, words=LIT)
MOVES = {
    ("switch on", Light.OFF): Light.ON,
    ("switch off", Light.ON): Light.OFF,
    ("smash", Light.OFF): Light.BROKEN,
    ("smash", Light.ON): Light.BROKEN,
}


@dataclass
class Drawn:
    """A random machine, with the table it was made from."""

    machine: Machine[StrEnum]
    verbs: dict[str, tuple[set[StrEnum], StrEnum]]


@st.composite
def machines(draw: st.DrawFn) -> Drawn:
    names = [f"s{number}" for number in range(draw(st.integers(1, 6)))]
    states: list[StrEnum] = list(StrEnum("Drawn", names))  # type: ignore[arg-type]  # the functional form makes a class
    verbs = {}
    for number, target in enumerate(states[1:], start=1):  # each state is led to from an earlier one
        verbs[f"reach{number}"] = ({draw(st.sampled_from(states[:number]))}, target)
    for number in range(draw(st.integers(0, 4))):
        sources = draw(st.sets(st.sampled_from(states), min_size=1))
        verbs[f"verb{number}"] = (sources, draw(st.sampled_from(states)))
    words = {state: f"What {state} means." for state in states}
    return Drawn(machine=Machine("thing", verbs, start=states[0], words=words), verbs=verbs)


@pytest.mark.parametrize(("verb", "state"), list(product(VERBS, Light)), ids=str)
def test_every_pair_of_verb_and_state_moves_or_is_refused(verb: str, state: Light):
    target = MOVES.get((verb, state))
    assert LIGHT.may(verb, state) == (target is not None)
    if target is not None:
        assert LIGHT.move(verb, state) is target
        return
    with pytest.raises(WrongState, match=f"Cannot {verb}: the light is {state}"):
        LIGHT.move(verb, state)


@given(machines())
def test_a_random_machine_does_what_its_table_says(drawn: Drawn):
    for verb, state in product(drawn.verbs, drawn.machine.states):
        sources, target = drawn.verbs[verb]
        assert drawn.machine.may(verb, state) == (state in sources)
        if state in sources:
            assert drawn.machine.move(verb, state) is target
        else:
            with pytest.raises(WrongState):
                drawn.machine.move(verb, state)


@given(machines())
def test_final_states_are_those_that_no_verb_leaves(drawn: Drawn):
    for state in drawn.machine.states:
        leaves = any(drawn.machine.may(verb, state) for verb in drawn.verbs)
        assert (state in drawn.machine.final) == (not leaves)


@given(machines())
def test_the_page_names_every_state_verb_and_move(drawn: Drawn):
    lines = drawn.machine.page().splitlines()
    for state in drawn.machine.states:
        assert f"| {state} | What {state} means. |" in lines
        assert (f"    {state} --> [*]" in lines) == (state in drawn.machine.final)
    for verb, (sources, target) in drawn.verbs.items():
        froms = ", ".join(sorted(sources))  # s0, s1, …: the order of the words
        assert f"| {verb} | {froms} | {target} |" in lines
        assert {line for line in lines if line.endswith(f": {verb}")} == {
            f"    {source} --> {target}: {verb}" for source in sources
        }


def test_the_page_is_markdown_with_a_diagram():
    page = LIGHT.page()
    assert page.startswith("## light\n\n```mermaid\nstateDiagram-v2\n    [*] --> off\n")
    assert page.endswith("| smash | off, on | broken |\n")


def test_a_refusal_says_what_the_state_must_be():
    with pytest.raises(WrongState) as refused:
        LIGHT.move("smash", Light.BROKEN)
    assert str(refused.value) == "Cannot smash: the light is broken and must be off or on."
    assert refused.value.status == 409


def test_an_unknown_verb_is_a_mistake_of_ours():
    with pytest.raises(KeyError, match="paint"):
        LIGHT.move("paint", Light.OFF)


def test_states_keep_the_order_of_their_words():
    assert LIGHT.states == (Light.OFF, Light.ON, Light.BROKEN)
    assert LIGHT.final == {Light.BROKEN}


@pytest.mark.parametrize("missing", Light)
def test_a_table_without_words_for_a_state_is_refused(missing: Light):
    words = {state: sentence for state, sentence in LIT.items() if state is not missing}
    with pytest.raises(ValueError, match=f"machine light: states without a description.*{missing}"):
        Machine("light", VERBS, start=Light.OFF, words=words)


def test_a_state_that_no_verb_knows_needs_words_too():
    verbs = {"switch on": ({Light.OFF}, Light.ON)}
    words = {Light.OFF: LIT[Light.OFF], Light.ON: LIT[Light.ON]}
    with pytest.raises(ValueError, match=r"without a description.*broken"):
        Machine("light", verbs, start=Light.OFF, words=words)


def test_a_state_that_nothing_leads_to_is_refused():
    verbs = {"switch on": ({Light.OFF, Light.BROKEN}, Light.ON)}
    with pytest.raises(ValueError, match=r"machine light: unreachable states.*broken"):
        Machine("light", verbs, start=Light.OFF, words=LIT)


def test_states_that_only_lead_to_each_other_are_refused():
    verbs = {"mend": ({Light.BROKEN}, Light.ON), "smash": ({Light.ON}, Light.BROKEN)}
    with pytest.raises(ValueError, match=r"unreachable states.*broken.*on"):
        Machine("light", verbs, start=Light.OFF, words=LIT)


def test_a_verb_that_can_never_be_used_is_refused():
    with pytest.raises(ValueError, match=r"machine light: verbs without a source state.*dim"):
        Machine("light", VERBS | {"dim": (set[Light](), Light.OFF)}, start=Light.OFF, words=LIT)
