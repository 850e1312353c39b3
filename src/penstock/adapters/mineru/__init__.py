"""The OCR provider `mineru`: documents are read by MinerU, in its cloud or on a self-hosted server.

A document is submitted whole, or in parts if it exceeds the cloud's limits; the job id is stored; the job is polled
until every part is done; each part's zip is unpacked and stored as pages. MinerU's license requires services built on
it to name it, as `metadata.ocr.provider` does. After a crash at any point the reader resumes from what is stored:
nothing is submitted twice and no part is read twice.

   reader.py      the provider                                config.py, errors.py  settings and errors
   plan.py        which parts; split.py cuts them (sandbox)   checkpoints.py  what an attempt leaves to the next
   session.py     the reading in progress                     poll.py, heartbeat.py  polling its job
   cloud.py       protocol v4; error_codes.py                 selfhosted.py  the `mineru-api` protocol
   protocol.py    the interface of both                       jobs.py  their common types
   http.py        bounded HTTP client
   unpack.py      reads the zip (sandbox)                     content.py  converts its blocks to pages

This file imports nothing: the sandbox runs functions of this package and should load no more than it needs.
"""
