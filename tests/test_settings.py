"""What `settings/` promises."""

from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.settings import BadSetting, EtlSettings, LlmSettings, MineruSettings, Settings, describe, load, unknown

OF_PARTS = {
    known.metadata["env"]: (part, known)
    for part, kind in {"etl": EtlSettings, "llm": LlmSettings, "mineru": MineruSettings}.items()
    for known in fields(kind)
}
OF_HOUSE = {known.metadata["env"]: known for known in fields(Settings) if known.metadata}
KNOWN = OF_HOUSE | {env: known for env, (_, known) in OF_PARTS.items()}
EXAMPLES: dict[type, tuple[str, Any]] = {
    bool: ("yes", True),
    int: ("17", 17),
    float: ("17.5", 17.5),
    str: ("file:///var/lib/penstock", "file:///var/lib/penstock"),
    type(Path()): ("some/folder", Path("some/folder")),
}
OF_KIND = {kind: [env for env, known in KNOWN.items() if type(known.default) is kind] for kind in EXAMPLES}
WITH_LEAST = {env: known.metadata["least"] for env, known in KNOWN.items() if known.metadata["least"] is not None}


def value_of(settings: Settings, env: str) -> Any:
    part, known = OF_PARTS.get(env, ("", KNOWN[env]))
    return getattr(getattr(settings, part) if part else settings, known.name)


def refusal(env: str, text: str) -> BadSetting:
    with pytest.raises(BadSetting) as refused:
        load({env: text})
    return refused.value


def test_an_empty_environment_gives_the_defaults():
    assert load({}) == Settings()


def test_the_defaults_need_no_service():
    settings = load({})
    assert settings.database == f"sqlite:///{Path('.penstock/penstock.db')}"
    assert settings.embedded


def test_the_database_follows_the_data_folder_unless_it_is_named():
    assert load({"PENSTOCK_DATA_DIR": "/srv/p"}).database == "sqlite:////srv/p/penstock.db"
    named = load({"PENSTOCK_DATA_DIR": "/srv/p", "PENSTOCK_DATABASE_URL": "postgresql://u@h/n"})
    assert named.database == "postgresql://u@h/n"
    assert not named.embedded


@pytest.mark.parametrize("env", KNOWN)
def test_every_setting_is_read_from_its_variable(env: str):
    known = KNOWN[env]
    text, value = EXAMPLES[type(known.default)]
    if known.metadata["most"] is not None:
        text, value = str(known.metadata["most"]), known.metadata["most"]
    if known.metadata["one_of"]:
        text = value = known.metadata["one_of"][-1]
    settings = load({env: text})
    assert value_of(settings, env) == value
    assert all(value_of(settings, other) == value_of(Settings(), other) for other in KNOWN if other != env)


def test_a_share_is_at_most_the_whole():
    assert "at most 1" in str(refusal("PENSTOCK_LOCAL_GATE_SHARE", "1.5"))


def test_an_older_name_is_honoured_unless_the_new_one_is_given():
    assert load({"ETL_REDIS_URL": "redis://old"}).redis_url == "redis://old"
    assert load({"ETL_REDIS_URL": "redis://old", "PENSTOCK_REDIS_URL": "redis://new"}).redis_url == "redis://new"


def test_a_word_that_is_not_among_the_choices_is_refused_with_the_choices():
    assert "arq, sql" in str(refusal("PENSTOCK_JOB_QUEUE", "kafka"))
    assert "text, json" in str(refusal("PENSTOCK_LOG_FORMAT", "xml"))


def test_a_misspelt_variable_is_found_with_what_may_have_been_meant():
    environ = {"PENSTOCK_REDIS_URI": "redis://h", "PENSTOCK_XYZZY": "1", "PENSTOCK_WORKERS": "2", "HOME": "/"}
    assert unknown(environ) == {"PENSTOCK_REDIS_URI": "PENSTOCK_REDIS_URL", "PENSTOCK_XYZZY": ""}


def test_no_secret_is_shown():
    secrets = {env: "hidden-value" for env, known in KNOWN.items() if known.metadata["secret"]}
    assert len(secrets) > 5
    assert "hidden-value" not in repr(load(secrets))


@pytest.mark.parametrize("env", KNOWN)
@pytest.mark.parametrize("text", ["", " ", "\t\n"], ids=["empty", "a space", "blanks"])
def test_an_empty_variable_counts_as_not_set(env: str, text: str):
    assert load({env: text}) == Settings()


def test_blanks_around_a_value_do_not_count():
    assert load({"PENSTOCK_WORKERS": " 8\n"}).workers == 8


def test_variables_that_are_not_ours_are_left_alone():
    assert load({"PATH": "/bin", "PENSTOCK_WORKER": "9", "penstock_workers": "9"}) == Settings()


def test_the_environment_of_the_process_is_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PENSTOCK_WORKERS", "3")
    assert load().workers == 3


@pytest.mark.parametrize("env", OF_KIND[bool])
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", True),
        ("TRUE", True),
        ("Yes", True),
        ("on", True),
        ("0", False),
        ("False", False),
        ("no", False),
        ("OFF", False),
    ],
)
def test_yes_and_no_have_several_spellings(env: str, text: str, value: bool):
    assert value_of(load({env: text}), env) is value


@pytest.mark.parametrize("env", OF_KIND[bool])
@pytest.mark.parametrize("text", ["2", "y", "maybe", "true!"])
def test_what_is_neither_yes_nor_no_is_refused(env: str, text: str):
    assert str(refusal(env, text)) == f"{env} is {text!r}, but it has to be yes or no."


@pytest.mark.parametrize("env", OF_KIND[int])
@pytest.mark.parametrize("text", ["four", "4.5", "4 5", "0x4", "nan", "--4"])
def test_what_is_no_whole_number_is_refused(env: str, text: str):
    assert str(refusal(env, text)) == f"{env} is {text!r}, but it has to be a whole number."


@pytest.mark.parametrize("env", OF_KIND[float])
@pytest.mark.parametrize("text", ["soon", "1,5", "5s", "nan", "NaN", "-nan", "inf", "-inf", "Infinity", "1e999"])
def test_what_is_no_number_is_refused(env: str, text: str):
    """Infinity too: no date lies that far away, so it would fail later and elsewhere."""
    assert str(refusal(env, text)) == f"{env} is {text!r}, but it has to be a number."


@pytest.mark.parametrize(("env", "least"), WITH_LEAST.items())
def test_the_least_is_accepted_and_anything_less_is_refused(env: str, least: float):
    assert value_of(load({env: f"{least:g}"}), env) == least
    assert str(refusal(env, f"{least - 1:g}")) == f"{env} is '{least - 1:g}', but it has to be at least {least:g}."


def test_every_number_has_a_least():
    assert set(OF_KIND[int]) | set(OF_KIND[float]) == set(WITH_LEAST)


@given(st.sampled_from(sorted(WITH_LEAST)), st.text(max_size=8))
def test_any_text_gives_a_number_in_bounds_or_a_refusal(env: str, text: str):
    try:
        settings = load({env: text})
    except BadSetting:
        settings = Settings()
    assert WITH_LEAST[env] <= value_of(settings, env) < float("inf")


def test_a_refusal_is_the_callers_fault_and_says_where_to_look():
    refused = refusal("PENSTOCK_WORKERS", "none")
    assert (refused.status, refused.code, refused.retryable) == (400, "BAD_SETTING", False)
    assert "docs/reference/settings.md" in refused.hint
    assert isinstance(refused.__cause__, ValueError)


def test_settings_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        load({}).workers = 9  # type: ignore[misc]  # the point of the test


def test_the_description_has_every_setting_once_with_a_sentence():
    described = describe()
    assert [one.env for one in described] == list(KNOWN)
    families = ("PENSTOCK_", "AWS_", "OTEL_", "PULL_", "TASK_", "RESET_", "RERUN_", "ETL_", "LLM_", "MINERU_")
    assert all(one.env.startswith(families) for one in described)
    assert all(one.doc.endswith(".") and one.default for one in described)


@pytest.mark.parametrize("one", describe(), ids=lambda one: one.env)
def test_a_described_default_can_be_typed_in_and_means_the_default(one: Any):
    typed = "" if one.default == "(empty)" else one.default
    assert load({one.env: typed}) == Settings()
