"""Bucket, endpoint and credentials, checked before the first request."""

from datetime import UTC, datetime

import pytest

from penstock.adapters.s3 import BadS3Settings, S3Bucket, S3Credentials
from penstock.adapters.s3.signing import S3Request, signed_headers

KEYS = S3Credentials(key_id="me", secret="very secret")


def at(url: str, *, endpoint: str = "", region: str = "eu-west-3", keys: S3Credentials | None = KEYS) -> S3Bucket:
    return S3Bucket.at(url, keys=keys, region=region, endpoint=endpoint)


@pytest.mark.parametrize(
    ("url", "bucket", "root"),
    [
        ("s3://penstock", "penstock", ""),
        ("s3://penstock/", "penstock", ""),
        ("s3://penstock/a", "penstock", "a/"),
        ("s3://my.bucket-1/a/b c#?%/", "my.bucket-1", "a/b c#?%/"),
    ],
)
def test_an_address_names_a_bucket_and_a_prefix(url, bucket, root):
    place = at(url)
    assert (place.bucket, place.root) == (bucket, root)


@pytest.mark.parametrize(
    ("region", "endpoint", "origin"),
    [
        ("eu-west-3", "", "https://s3.eu-west-3.amazonaws.com"),
        ("cn-north-1", "", "https://s3.cn-north-1.amazonaws.com.cn"),
        ("eu-west-3", "http://127.0.0.1:8333/", "http://127.0.0.1:8333"),
    ],
)
def test_without_an_endpoint_the_store_is_amazons_own(region, endpoint, origin):
    assert at("s3://penstock", region=region, endpoint=endpoint).origin == origin


@pytest.mark.parametrize(
    ("url", "endpoint", "reason"),
    [
        ("file:///a", "", "does not begin with s3://"),
        ("s3://", "", "not a valid bucket name"),
        ("s3:///a", "", "not a valid bucket name"),
        ("s3://UPPER", "", "not a valid bucket name"),
        ("s3://me:secret@bucket", "", "not a valid bucket name"),
        ("s3://bucket/../a", "", "prefix is not allowed"),
        ("s3://bucket/a//b", "", "prefix is not allowed"),
        ("s3://bucket/" + "/".join(["p" * 150] * 3), "", "longer than 400"),
        ("s3://bucket", "127.0.0.1:8333", "must look like"),
        ("s3://bucket", "ftp://host", "must look like"),
        ("s3://bucket", "http://", "must look like"),
        ("s3://bucket", "http://host:port", "must look like"),
        ("s3://bucket", "http://host:0", "must look like"),
        ("s3://bucket", "http://me:hidden@host", "a user name or a password"),
        ("s3://bucket", "http://host/bucket", "has a path"),
        ("s3://bucket", "http://host?a=b", "has a path"),
    ],
)
def test_an_invalid_bucket_or_endpoint_is_refused_with_its_reason(url, endpoint, reason):
    with pytest.raises(BadS3Settings, match=reason) as refused:
        at(url, endpoint=endpoint)
    assert "hidden" not in f"{refused.value} {refused.value.in_chinese()}"


@pytest.mark.parametrize("keys", [S3Credentials(key_id="", secret="s"), S3Credentials(key_id="k", secret="")])
def test_half_a_pair_of_keys_is_refused(keys):
    with pytest.raises(BadS3Settings, match="only one of"):
        at("s3://bucket", keys=keys)


def test_a_region_is_needed():
    with pytest.raises(BadS3Settings, match="region"):
        at("s3://bucket", region="")


def test_no_secret_is_shown():
    place = at("s3://bucket", keys=S3Credentials(key_id="me", secret="very secret", token="passing secret"))
    assert "secret" not in repr(place).replace("key_id='me'", "")


def test_a_signature_is_the_one_of_amazons_own_example():
    """The worked example of the documentation of Signature Version 4: GET Bucket Lifecycle."""
    request = S3Request(
        method="GET", origin="https://examplebucket.s3.amazonaws.com", path="/", query={"lifecycle": ""}
    )
    keys = S3Credentials(key_id="AKIAIOSFODNN7EXAMPLE", secret="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    headers = signed_headers(request, keys=keys, region="us-east-1", at=datetime(2013, 5, 24, tzinfo=UTC))
    signature = headers["authorization"].rpartition("Signature=")[2]
    assert signature == "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"


def test_a_session_token_is_signed_too():
    request = S3Request(method="GET", origin="http://host", path="/bucket")
    keys = S3Credentials(key_id="me", secret="s", token="passing")
    headers = signed_headers(request, keys=keys, region="us-east-1", at=datetime(2026, 1, 1, tzinfo=UTC))
    assert headers["x-amz-security-token"] == "passing"
    assert "x-amz-security-token" in headers["authorization"]
