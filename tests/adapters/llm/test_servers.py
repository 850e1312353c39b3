"""Parsing LLM_SERVERS and its errors."""

import json

import pytest

from penstock.adapters.llm import BadModelServer, ModelServer, read_servers

SECRET = "sk-do-not-show-me-anywhere"


def described(**fields: object) -> str:
    return json.dumps({"fast": {"base_url": "http://127.0.0.1:1/v1", "api_key": SECRET} | fields})


class TestReading:
    @pytest.mark.parametrize("text", ["", "  ", "{}"])
    def test_no_servers_are_none(self, text: str):
        assert read_servers(text) == []

    def test_a_server_has_its_own_address_key_model_and_prices(self):
        text = described(model="m", input_price=1, output_price=2.5)
        assert read_servers(text) == [
            ModelServer(
                name="fast",
                base_url="http://127.0.0.1:1/v1",
                api_key=SECRET,
                model="m",
                input_price=1,
                output_price=2.5,
            )
        ]

    def test_an_address_alone_is_enough(self):
        [server] = read_servers('{"local": {"base_url": "https://models.example/v1/"}}')
        assert (server.api_key, server.model, server.input_price) == ("", "", 0)
        assert server.url == "https://models.example/v1/chat/completions"

    def test_a_printed_server_does_not_show_its_key(self):
        [server] = read_servers(described())
        assert SECRET not in f"{server} {server!r}"

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("[]", "LLM_SERVERS must be an object"),
            (f'{{"fast": {{"api_key": "{SECRET}"', "LLM_SERVERS is not JSON"),
            (f'{{"fast": {{"api_key": {SECRET}}}}}', "LLM_SERVERS is not JSON (byte 21)"),
            ("[" * 100_000, "LLM_SERVERS is not JSON"),
            (json.dumps({f"s{n}": {"base_url": "http://a/v1"} for n in range(51)}), "has more than 50 servers"),
            ('{"fast": 7}', "server fast: its value must be an object"),
            ('{"default": {"base_url": "http://a/v1"}}', "server default: its name is reserved"),
            ('{"a b": {"base_url": "http://a/v1"}}', "server 'a b': its name may contain"),
            (json.dumps({SECRET + "!": {}}), "server 'sk-…': its name"),
            ('{"fast": {"api_key": ""}}', "server fast: base_url is missing"),
            (described(adress="x"), "server fast: 'adress' is unknown"),
            (described(**{SECRET: "x"}), "server fast: 'sk-…' is unknown"),
            (described(base_url=7), "server fast: base_url must be a string"),
            (described(base_url="models.example/v1"), "base_url must look like https://host/v1"),
            (described(base_url="ftp://models.example"), "base_url must look like"),
            (described(base_url="http://"), "base_url must look like"),
            (described(base_url="http://[::1/v1"), "base_url is not a URL"),
            (described(base_url=f"http://me:{SECRET}@a/v1"), "base_url must not contain a user"),
            (described(base_url=f"http://a/v1?key={SECRET}"), "base_url must not contain ? or #"),
            (described(api_key=["x"]), "api_key must be a string"),
            (described(api_key=SECRET + "\n"), "api_key contains invalid characters"),
            (described(api_key=SECRET + "é"), "api_key contains invalid characters"),
            (described(model="m" * 2001), "model is longer than 2000 characters"),
            (described(input_price="1"), "input_price must be a non-negative number"),
            (described(input_price=True), "input_price must be a non-negative number"),
            (described(output_price=-1), "output_price must be a non-negative number"),
        ],
    )
    def test_an_invalid_setting_is_named_without_showing_a_key(self, text: str, words: str):
        with pytest.raises(BadModelServer) as refused:
            read_servers(text)
        shown = f"{refused.value} {refused.value.in_chinese()} {refused.value.values}"
        assert words in shown
        assert SECRET not in shown
        assert refused.value.__cause__ is None


class TestCost:
    def test_prices_are_for_a_million_tokens(self):
        server = ModelServer(name="a", base_url="http://a/v1", input_price=2, output_price=10)
        assert server.cost(500_000, 100_000) == pytest.approx(2.0)

    def test_without_prices_or_tokens_the_cost_is_unknown(self):
        free, paid = (ModelServer(name="a", base_url="http://a/v1", input_price=price) for price in (0, 2))
        assert (free.cost(1, 1), paid.cost(None, 1), paid.cost(1, None)) == (None, None, None)
