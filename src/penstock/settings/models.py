"""The settings of what is far away: language models and MinerU."""

from dataclasses import dataclass

from penstock.settings.entry import setting


@dataclass(frozen=True, kw_only=True)
class LlmSettings:
    """What can be set about language models."""

    base_url: str = setting(
        "LLM_BASE_URL", "", "An OpenAI-compatible server, as in http://127.0.0.1:8080/v1; none when empty."
    )
    api_key: str = setting("LLM_API_KEY", "", "Its key.", secret=True)
    model: str = setting("LLM_MODEL", "", "The model that is asked where a rule names none.")
    servers: str = setting(
        "LLM_SERVERS",
        "",
        "More servers for rules to name, in JSON: name to base_url, api_key, model, input_price, output_price.",
        secret=True,
    )
    temperature: float = setting(
        "LLM_TEMPERATURE", 0.3, "How freely a model chooses its words; a rule may say otherwise.", least=0, most=2
    )
    max_tokens: int = setting("LLM_MAX_TOKENS", 0, "The most tokens of an answer; 0 leaves it to the server.", least=0)
    timeout: float = setting("LLM_TIMEOUT", 120.0, "How many seconds one answer may take.", least=1)
    repair_rounds: int = setting(
        "LLM_REPAIR_ROUNDS", 2, "How often a model is shown what is wrong with its answer.", least=0, most=10
    )
    response_mode: str = setting(
        "LLM_RESPONSE_MODE",
        "auto",
        "The firmest response format that is asked for; `auto` begins with the firmest there is.",
        one_of=("auto", "json_schema_strict", "json_schema", "json_object", "plain"),
    )
    calls_per_second: float = setting(
        "LLM_CALLS_PER_SECOND", 5.0, "How many calls all workers together may make in a second.", least=0.01
    )
    concurrency: int = setting("LLM_CONCURRENCY", 4, "How many calls one process makes at the same time.", least=1)
    input_price: float = setting("LLM_INPUT_PRICE", 0.0, "What a million tokens of a question cost.", least=0)
    output_price: float = setting("LLM_OUTPUT_PRICE", 0.0, "What a million tokens of an answer cost.", least=0)


@dataclass(frozen=True, kw_only=True)
class MineruSettings:
    """What can be set about MinerU, when it is the one who reads."""

    api_key: str = setting("MINERU_API_KEY", "", "The cloud's token; a self-hosted server needs none.", secret=True)
    api_endpoint: str = setting(
        "MINERU_API_ENDPOINT", "https://mineru.net/api/v4", "The cloud's address, or a self-hosted server's."
    )
    protocol: str = setting(
        "MINERU_PROTOCOL",
        "auto",
        "`cloud`, `selfhosted`, or `auto`: cloud when the address ends in /api/v4.",
        one_of=("auto", "cloud", "selfhosted"),
    )
    poll_interval: float = setting(
        "MINERU_POLL_INTERVAL", 5.0, "How many seconds lie between two looks at a job.", least=0.01
    )
    timeout: float = setting("MINERU_TIMEOUT", 600.0, "How many seconds a job may go on without any progress.", least=1)
    source: str = setting(
        "MINERU_SOURCE",
        "auto",
        "How the cloud gets a document: by `upload`, by a signed `url`, or `auto`: url where the store gives one.",
        one_of=("auto", "upload", "url"),
    )
    source_url_seconds: float = setting(
        "MINERU_SOURCE_URL_SECONDS", 3600.0, "How long such a signed address is good.", least=1
    )
    model_version: str = setting(
        "MINERU_MODEL_VERSION", "pipeline", "Which model of the cloud reads.", one_of=("pipeline", "vlm")
    )
    language: str = setting("MINERU_LANGUAGE", "ch", "The language pack of its OCR; `ch` is Chinese and English.")
    max_file_bytes: int = setting(
        "MINERU_MAX_FILE_BYTES", 200_000_000, "The largest file that the cloud takes; larger PDFs are split.", least=1
    )
    max_pages: int = setting(
        "MINERU_MAX_PAGES", 200, "The most pages of one file that the cloud takes; longer ones are split.", least=1
    )
