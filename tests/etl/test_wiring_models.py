"""MinerU and model servers as wiring builds them: valid settings, and invalid ones rejected by name."""

import pytest

from penstock.settings import BadSetting, load
from penstock.wiring.models import list_servers, mineru_terms

SECRET = "geheim-1"


@pytest.mark.parametrize(
    "endpoint",
    [
        "mineru.net/api/v4",
        "ftp://mineru.net/api/v4",
        "https://",
        "https://[half",
        "https://host:port",
        f"https://me:{SECRET}@mineru.net/api/v4",
        f"https://mineru.net/api/v4?token={SECRET}",
    ],
)
def test_an_address_of_mineru_that_is_none_is_refused_and_not_shown(endpoint: str):
    with pytest.raises(BadSetting, match="MINERU_API_ENDPOINT") as refused:
        mineru_terms(load({"MINERU_API_ENDPOINT": endpoint}))
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("environ", "spoken"),
    [
        ({}, "cloud"),
        ({"MINERU_API_ENDPOINT": "https://mineru.net/api/v4/"}, "cloud"),
        ({"MINERU_API_ENDPOINT": "http://[::1]:8000"}, "selfhosted"),
        ({"MINERU_API_ENDPOINT": "http://gateway/mineru", "MINERU_PROTOCOL": "cloud"}, "cloud"),
    ],
)
def test_the_protocol_follows_from_the_address_unless_it_is_set(environ: dict[str, str], spoken: str):
    assert mineru_terms(load(environ)).resolved_protocol == spoken


def test_what_is_set_about_documents_holds_for_mineru_too():
    config = mineru_terms(load({"ETL_MAX_PAGES": "7", "ETL_MAX_FILE_BYTES": "9", "MINERU_API_KEY": SECRET}))
    assert (config.max_document_pages, config.max_document_bytes, config.api_key) == (7, 9, SECRET)
    assert SECRET not in repr(config)


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"LLM_BASE_URL": f"http://me:{SECRET}@host/v1"}, "LLM_BASE_URL"),
        ({"LLM_SERVERS": f'{{"a": {{"api_key": "{SECRET}"'}, "Invalid LLM_SERVERS '…': it is not JSON"),
        ({"LLM_SERVERS": f'{{"a": {{"api_key": "{SECRET}"}}}}'}, "Invalid LLM_SERVERS '…': a: base_url is missing"),
    ],
)
def test_a_server_of_models_that_cannot_be_used_is_refused_by_its_setting(environ: dict[str, str], named: str):
    with pytest.raises(BadSetting, match=named) as refused:
        list_servers(load(environ).llm)
    assert SECRET not in str(refused.value)


def test_servers_are_the_one_that_is_set_and_the_others_by_their_names():
    more = '{"careful": {"base_url": "http://other/v1", "model": "large"}}'
    llm = load(
        {"LLM_BASE_URL": "http://host/v1", "LLM_MODEL": "small", "LLM_SERVERS": more, "LLM_INPUT_PRICE": "2"}
    ).llm
    assert [(one.name, one.model, one.input_price) for one in list_servers(llm)] == [
        ("default", "small", 2.0),
        ("careful", "large", 0.0),
    ]
    assert list_servers(load({"LLM_MODEL": "small"}).llm) == []
