"""Blobs in a local directory.

    root/incoming/4f0c…            a temporary file; `sweep` removes those a crash leaves behind
    root/objects/uploads~/42~/a    the object uploads/42/a
    root/staged/uploads%2F43       an object that is still being written, in pieces

A directory name ends in "~", which a key segment never does, so `a` and `a/b` can both be objects. A delete also
removes directories it leaves empty: every job has its own directories, and they would pile up. Several processes may
share the root. It needs a POSIX file system with hard links that is case-sensitive.

blobs.py: the Blobs port; each call is one hop into a thread. writing.py: temporary files and how they are published.
staging.py: the staging area. reading.py: read one object. listing.py: list objects in key order. directories.py: walk
paths without following links.
"""

from penstock.adapters.disk.blobs import DiskBlobs
from penstock.adapters.disk.staging import DiskStaging

__all__ = ["DiskBlobs", "DiskStaging"]
