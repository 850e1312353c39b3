"""The settings of the gateway module."""

from dataclasses import dataclass

from penstock.settings.field import setting


@dataclass(frozen=True, kw_only=True)
class GatewaySettings:
    """Settings of uploads."""

    tus_max_size_gb: float = setting("GW_TUS_MAX_SIZE_GB", 16.0, "The largest upload in GiB.", least=0.001)
    tus_expiry_hours: float = setting(
        "GW_TUS_EXPIRY_HOURS", 6.0, "How long an unfinished upload is kept after its last byte.", least=0.01
    )
    tus_chunk_timeout_sec: float = setting(
        "GW_TUS_CHUNK_TIMEOUT_SEC",
        60.0,
        "How many seconds a PATCH may be silent before it ends with 408; its bytes are kept.",
        least=1,
    )
    tus_takeover_sec: float = setting(
        "GW_TUS_TAKEOVER_SEC",
        5.0,
        "How many seconds after the last byte of a silent PATCH another one may take over the upload.",
        least=0.2,
    )
    max_open_uploads: int = setting(
        "GW_MAX_OPEN_UPLOADS", 1000, "The most unfinished uploads of one user; more are refused with 429.", least=1
    )
    allowed_types: str = setting(
        "GW_ALLOWED_TYPES", "pdf", "Filename extensions that may be uploaded, separated by commas."
    )
    s3_max_parts: int = setting(
        "GW_S3_MAX_PARTS",
        10_000,
        "The most parts of an upload on S3; their size follows from it.",
        least=2,
        most=10_000,
    )
