"""Remote services: language models and MinerU."""

from dataclasses import replace
from typing import cast
from urllib.parse import urlsplit

from penstock.adapters.llm import (
    DEFAULT,
    BadModelServer,
    ChatCompletions,
    ChatConfig,
    FirstMode,
    ModelServer,
    read_servers,
)
from penstock.adapters.mineru.config import MineruConfig
from penstock.adapters.mineru.reader import MineruReader
from penstock.kernel.blobs import Blobs
from penstock.kernel.clock import Clock
from penstock.kernel.rate_limits import RateLimits
from penstock.kernel.sandbox.call import Sandbox
from penstock.settings import BadSetting, LlmSettings, Settings


def build_models(settings: Settings, clock: Clock, limits: RateLimits) -> ChatCompletions:
    """The client of the language models that rules with mode `llm` use; without servers it refuses every call."""
    llm = settings.llm
    terms = ChatConfig(
        temperature=llm.temperature,
        max_tokens=llm.max_tokens,
        timeout=llm.timeout,
        response_mode=cast(FirstMode, llm.response_mode),
        concurrency=llm.concurrency,
        calls_per_second=llm.calls_per_second,
    )
    return ChatCompletions(list_servers(llm), terms, limits=limits, clock=clock)


def build_mineru(settings: Settings, clock: Clock, blobs: Blobs, sandbox: Sandbox) -> MineruReader | None:
    """The MinerU reader, if the settings choose it."""
    if settings.etl.ocr_provider != "mineru":
        return None
    scratch = settings.data_dir / settings.etl.cache_dir
    return MineruReader(blobs, sandbox=sandbox, scratch=scratch, clock=clock, config=mineru_terms(settings))


def mineru_terms(settings: Settings) -> MineruConfig:
    """The MinerU settings; raises `BadSetting` for an invalid address."""
    mineru, etl = settings.mineru, settings.etl
    _check_address(mineru.api_endpoint)
    return MineruConfig(
        api_key=mineru.api_key,
        endpoint=mineru.api_endpoint,
        protocol=mineru.protocol,
        poll_interval=mineru.poll_interval,
        timeout=mineru.timeout,
        source=mineru.source,
        source_url_seconds=mineru.source_url_seconds,
        model_version=mineru.model_version,
        language=mineru.language,
        max_file_bytes=mineru.max_file_bytes,
        max_pages=mineru.max_pages,
        max_document_bytes=etl.max_file_bytes,
        max_document_pages=etl.max_pages,
    )


def list_servers(llm: LlmSettings) -> list[ModelServer]:
    """The configured model servers; raises `BadSetting` for an invalid one."""
    try:
        named = read_servers(llm.servers)
        if not llm.base_url:
            return named
        own = ModelServer(name=DEFAULT, base_url=llm.base_url, api_key=llm.api_key, model=llm.model)
        return [replace(own, input_price=llm.input_price, output_price=llm.output_price), *named]
    except BadModelServer as error:
        env = "LLM_BASE_URL" if error.values["name"] == DEFAULT else "LLM_SERVERS"
        where = "it" if error.values["name"] == "*" else f"{error.values['name']}: {error.values['field']}"
        reason = f"{where} {error.values['reason']}"
        raise BadSetting(env=env, value="…", reason=reason) from error  # the value may contain keys


def _check_address(endpoint: str) -> None:
    try:
        address = urlsplit(endpoint)
        valid = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:
        address, valid = urlsplit(""), False
    if not valid or "@" in address.netloc or address.query or address.fragment:
        reason = "expected a URL like https://mineru.net/api/v4 or http://host:8000, without user or query"
        raise BadSetting(env="MINERU_API_ENDPOINT", value="…", reason=reason)  # the URL may contain a password
