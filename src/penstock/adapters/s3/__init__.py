"""Blobs in a bucket of any S3-compatible store.

    s3://bucket/prefix/uploads/42/a          the object uploads/42/a
    s3://bucket/prefix/incoming~/4f0c…       a large object on its way to a key that must still be free

obstore carries the bytes; what it cannot ask, `asking.py` asks. A put of up to 8 MiB is one request, a larger one is
uploaded in parts: either way the object is there whole, or not at all. A key is taken by a request that the store
refuses when the key is taken already (If-None-Match), so of many racers one wins, in whatever process they are.

When a put fails with BLOBS_UNAVAILABLE, the store may have taken it all the same: whole, like every put.

place.py: which bucket, and as whom. blobs.py: the port. writing.py, reading.py: one object. turns.py: racers.
listing.py: many objects, in order. doors.py: how patiently obstore goes there. asking.py, signing.py: the few requests
of our own. role_pages.py: listings where the keys are the machine's. faults.py: names for what goes wrong.
"""

from penstock.adapters.s3.blobs import S3Blobs
from penstock.adapters.s3.place import BadS3Place, Keys, Patience, S3Place

__all__ = ["BadS3Place", "Keys", "Patience", "S3Blobs", "S3Place"]
