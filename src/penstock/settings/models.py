"""The settings of remote services: language models for extraction, and MinerU for OCR."""

from dataclasses import dataclass

from penstock.settings.field import setting


@dataclass(frozen=True, kw_only=True)
class LlmSettings:
    """Settings of language models."""

    base_url: str = setting(
        "LLM_BASE_URL", "", "The URL of an OpenAI-compatible server, like http://127.0.0.1:8080/v1; none if empty."
    )
    api_key: str = setting("LLM_API_KEY", "", "The API key of this server.", secret=True)
    model: str = setting("LLM_MODEL", "", "The model for rules that name none.")
    servers: str = setting(
        "LLM_SERVERS",
        "",
        "More servers that rules can name, as JSON: name to base_url, api_key, model, input_price, output_price.",
        secret=True,
    )
    temperature: float = setting(
        "LLM_TEMPERATURE", 0.3, "The sampling temperature, unless a rule sets it.", least=0, most=2
    )
    max_tokens: int = setting(
        "LLM_MAX_TOKENS", 0, "The most tokens of a model's response; 0 leaves it to the server.", least=0
    )
    timeout: float = setting("LLM_TIMEOUT", 120.0, "The timeout of one call in seconds.", least=1)
    repair_rounds: int = setting(
        "LLM_REPAIR_ROUNDS", 2, "How often a model is asked to repair an invalid response.", least=0, most=10
    )
    response_mode: str = setting(
        "LLM_RESPONSE_MODE",
        "auto",
        "The strictest response format to request; `auto` starts with the strictest.",
        one_of=("auto", "json_schema_strict", "json_schema", "json_object", "plain"),
    )
    calls_per_second: float = setting(
        "LLM_CALLS_PER_SECOND",
        5.0,
        "The rate limit of a model server: the most calls per second of all workers together.",
        least=0.01,
    )
    concurrency: int = setting("LLM_CONCURRENCY", 4, "The most concurrent calls of one process.", least=1)
    input_price: float = setting("LLM_INPUT_PRICE", 0.0, "The price of a million input tokens.", least=0)
    output_price: float = setting("LLM_OUTPUT_PRICE", 0.0, "The price of a million output tokens.", least=0)


@dataclass(frozen=True, kw_only=True)
class MineruSettings:
    """Settings of MinerU, used if it reads documents."""

    api_key: str = setting(
        "MINERU_API_KEY", "", "The API key of MinerU's cloud; a self-hosted server needs none.", secret=True
    )
    api_endpoint: str = setting(
        "MINERU_API_ENDPOINT",
        "https://mineru.net/api/v4",
        "The base URL of MinerU: of its cloud or of a self-hosted server.",
    )
    protocol: str = setting(
        "MINERU_PROTOCOL",
        "auto",
        "`cloud`, `selfhosted`, or `auto`: cloud if the URL ends in /api/v4.",
        one_of=("auto", "cloud", "selfhosted"),
    )
    poll_interval: float = setting(
        "MINERU_POLL_INTERVAL", 5.0, "The seconds between two polls of a MinerU job.", least=0.01
    )
    timeout: float = setting(
        "MINERU_TIMEOUT", 600.0, "How many seconds a MinerU job may run without progress.", least=1
    )
    source: str = setting(
        "MINERU_SOURCE",
        "auto",
        "How the cloud gets a document: `upload`, a signed `url`, or `auto`: url if the blob store can sign one.",
        one_of=("auto", "upload", "url"),
    )
    source_url_seconds: float = setting("MINERU_SOURCE_URL_SECONDS", 3600.0, "How long a signed URL is valid.", least=1)
    model_version: str = setting(
        "MINERU_MODEL_VERSION", "pipeline", "The model of the cloud.", one_of=("pipeline", "vlm")
    )
    language: str = setting(
        "MINERU_LANGUAGE",
        "ch",
        "The OCR language of MinerU: `ch` (Chinese and English), `en`, `japan`, `latin` and others.",
    )
    max_file_bytes: int = setting(
        "MINERU_MAX_FILE_BYTES",
        200_000_000,
        "The largest file in bytes that MinerU's cloud accepts; larger PDFs are split.",
        least=1,
    )
    max_pages: int = setting(
        "MINERU_MAX_PAGES",
        200,
        "The most pages of one file that MinerU's cloud accepts; longer documents are split.",
        least=1,
    )
