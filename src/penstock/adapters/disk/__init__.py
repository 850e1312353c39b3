"""Blobs in a local folder.

    root/incoming/4f0c…            being written; a crash can leave one behind, `sweep` takes it away
    root/objects/uploads~/42~/a    the object uploads/42/a

A folder's name ends in "~", which no segment of a key may, so that `a` and `a/b` can both be objects.
Folders left empty by a delete are removed: each job has folders of its own, and they would pile up for ever.
Several processes may share the root. It needs a POSIX file system that has hard links and does not fold case.

blobs.py: the port, each call one hop into a thread. writing.py: drafts and how they become objects.
reading.py: one object. listing.py: many, in order. folders.py: how paths are walked without following links.
"""

from penstock.adapters.disk.blobs import DiskBlobs

__all__ = ["DiskBlobs"]
