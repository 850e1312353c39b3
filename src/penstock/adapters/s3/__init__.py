"""Blobs in a bucket of any S3-compatible store.

    s3://bucket/prefix/uploads/42/a          the object uploads/42/a
    s3://bucket/prefix/incoming~/4f0c…       a large object being created; copied to its key if that is still free

obstore transfers the bytes; `signed_requests.py` sends the few requests it does not support. A put of up to 8 MiB is
one request, a larger one a multipart upload: either way the object appears whole or not at all. Creating a key is a
conditional request (If-None-Match): a put, or a copy of a large object, since SeaweedFS ignores the condition on
completing a multipart upload, so of many racing processes exactly one wins. On a store that ignores the condition on
copies, two large uploads that create the same key could both succeed.

When a put fails with BLOBS_UNAVAILABLE, the store may still have accepted it, whole like every put.

config.py: bucket, credentials, timeouts. blobs.py: the Blobs port. writing.py: uploads and locks. listing.py: list
in key order. clients.py: obstore clients by timeout and retry. signed_requests.py, signing.py: our own requests.
obstore_listing.py: listing with the machine's role. errors.py: error mapping.
"""

from penstock.adapters.s3.blobs import S3Blobs
from penstock.adapters.s3.config import BadS3Settings, S3Bucket, S3Credentials, S3Timeouts
from penstock.adapters.s3.staging import S3Staging

__all__ = ["BadS3Settings", "S3Blobs", "S3Bucket", "S3Credentials", "S3Staging", "S3Timeouts"]
