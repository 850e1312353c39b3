"""Settings from the environment. Each property is checked for every setting, in a loop."""

from dataclasses import FrozenInstanceError, fields
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.settings import (
    BadSetting,
    EtlSettings,
    GatewaySettings,
    LlmSettings,
    MineruSettings,
    Settings,
    describe,
    load,
    unknown,
)

PARTS = {"gateway": GatewaySettings, "etl": EtlSettings, "llm": LlmSettings, "mineru": MineruSettings}
OF_PARTS = {
    known.metadata["env"]: (part, known)
    for part, kind in {
        "gateway": GatewaySettings,
        "etl": EtlSettings,
        "llm": LlmSettings,
        "mineru": MineruSettings,
    }.items()
    for known in fields(kind)
}
OF_PROCESS = {known.metadata["env"]: known for known in fields(Settings) if known.metadata}
KNOWN = OF_PROCESS | {env: known for env, (_, known) in OF_PARTS.items()}
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


def test_every_setting_is_read_from_its_variable():
    for env, known in KNOWN.items():
        text, value = EXAMPLES[type(known.default)]
        if known.metadata["most"] is not None:
            text, value = str(known.metadata["most"]), known.metadata["most"]
        if known.metadata["one_of"]:
            text = value = known.metadata["one_of"][-1]
        settings = load({env: text})
        assert value_of(settings, env) == value, env
        changed = [other for other in KNOWN if value_of(settings, other) != value_of(Settings(), other)]
        assert changed == ([env] if value != value_of(Settings(), env) else []), env


def test_a_share_is_at_most_the_whole():
    assert "at most 1" in str(refusal("PENSTOCK_LOCAL_GATE_SHARE", "1.5"))


def test_a_former_name_is_accepted_unless_the_new_one_is_given():
    assert load({"ETL_REDIS_URL": "redis://old"}).redis_url == "redis://old"
    assert load({"ETL_REDIS_URL": "redis://old", "PENSTOCK_REDIS_URL": "redis://new"}).redis_url == "redis://new"


def test_a_value_that_is_not_a_choice_is_refused_with_the_choices():
    assert "arq, sql" in str(refusal("PENSTOCK_JOB_QUEUE", "kafka"))
    assert "text, json" in str(refusal("PENSTOCK_LOG_FORMAT", "xml"))


def test_a_misspelt_variable_is_reported_with_a_suggestion():
    environ = {"PENSTOCK_REDIS_URI": "redis://h", "PENSTOCK_XYZZY": "1", "PENSTOCK_WORKERS": "2", "HOME": "/"}
    assert unknown(environ) == {"PENSTOCK_REDIS_URI": "PENSTOCK_REDIS_URL", "PENSTOCK_XYZZY": ""}


def test_a_misspelt_variable_of_a_module_is_reported_too():
    misspelt = {
        "PULL_TIME_OUT": "PULL_TIMEOUT",
        "ETL_QUEUESIZE": "ETL_QUEUE_SIZE",
        "LLM_APIKEY": "LLM_API_KEY",
        "MINERU_ENDPOINT": "MINERU_API_ENDPOINT",
        "TASK_EXPIRED_ACTIONS": "TASK_EXPIRED_ACTION",
        "LLM_NOTHING_LIKE_IT": "",
    }
    foreign = {"TASK_ID": "7", "RESET_COLOR": "1", "ETL_REDIS_URL": "redis://h", "AWS_PROFILE": "p"}
    assert unknown(dict.fromkeys(misspelt, "1") | foreign) == misspelt


def test_no_secret_is_shown():
    secrets = {env: "hidden-value" for env, known in KNOWN.items() if known.metadata["secret"]}
    assert len(secrets) > 5
    assert "hidden-value" not in repr(load(secrets))


@pytest.mark.parametrize("text", ["", " ", "\t\n"], ids=["empty", "a space", "blanks"])
def test_an_empty_variable_counts_as_not_set(text: str):
    for env in KNOWN:
        assert load({env: text}) == Settings(), env


def test_blanks_around_a_value_do_not_count():
    assert load({"PENSTOCK_WORKERS": " 8\n"}).workers == 8


def test_variables_that_are_not_ours_are_left_alone():
    assert load({"PATH": "/bin", "PENSTOCK_WORKER": "9", "penstock_workers": "9"}) == Settings()


def test_the_environment_of_the_process_is_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PENSTOCK_WORKERS", "3")
    assert load().workers == 3


def test_a_boolean_has_several_spellings():
    for env, text in product(OF_KIND[bool], ["1", "TRUE", "Yes", "on"]):
        assert value_of(load({env: text}), env) is True, (env, text)
    for env, text in product(OF_KIND[bool], ["0", "False", "no", "OFF"]):
        assert value_of(load({env: text}), env) is False, (env, text)


def test_an_invalid_boolean_is_refused():
    for env, text in product(OF_KIND[bool], ["2", "y", "maybe", "true!"]):
        assert str(refusal(env, text)) == f"Invalid {env} {text!r}: expected yes or no."


def test_an_invalid_integer_is_refused():
    for env, text in product(OF_KIND[int], ["four", "4.5", "4 5", "0x4", "nan", "--4"]):
        assert str(refusal(env, text)) == f"Invalid {env} {text!r}: expected an integer."


def test_an_invalid_number_is_refused():
    """Infinity too: no date lies that far away, so it would fail later and elsewhere."""
    invalid = ["soon", "1,5", "5s", "nan", "NaN", "-nan", "inf", "-inf", "Infinity", "1e999"]
    for env, text in product(OF_KIND[float], invalid):
        assert str(refusal(env, text)) == f"Invalid {env} {text!r}: expected a number."


def test_the_least_is_accepted_and_anything_less_is_refused():
    for env, least in WITH_LEAST.items():
        assert value_of(load({env: f"{least:g}"}), env) == least
        assert str(refusal(env, f"{least - 1:g}")) == f"Invalid {env} '{least - 1:g}': expected at least {least:g}."


def test_every_number_has_a_least():
    assert set(OF_KIND[int]) | set(OF_KIND[float]) == set(WITH_LEAST)


@given(st.sampled_from(sorted(WITH_LEAST)), st.text(max_size=8))
def test_any_text_gives_a_number_in_bounds_or_a_refusal(env: str, text: str):
    try:
        settings = load({env: text})
    except BadSetting:
        settings = Settings()
    assert WITH_LEAST[env] <= value_of(settings, env) < float("inf")


def test_a_refusal_is_the_callers_fault_and_names_the_reference():
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
    families = ("PENSTOCK_", "AWS_", "OTEL_", "PULL_", "TASK_", "RESET_", "RERUN_", "GW_", "ETL_", "LLM_", "MINERU_")
    assert all(one.env.startswith(families) for one in described)
    assert all(one.doc.endswith(".") and one.default for one in described)


def test_a_described_default_can_be_typed_in_and_means_the_default():
    for one in describe():
        typed = "" if one.default == "(empty)" else one.default
        assert load({one.env: typed}) == Settings(), one.env
