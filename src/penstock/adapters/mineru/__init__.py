"""The OCR provider `mineru`: documents are read by MinerU, in its cloud or on a server of one's own.

A document goes out whole, or as parts where it is over the cloud's limits; the job's id is kept; the job is looked at
until every part is done; each part's zip is unpacked with care and kept as pages. Killed at any point and called again,
the reader goes on from what is kept: it sends nothing twice that was sent, and reads no part again that was read.

    reader.py      the provider: plan, send, follow, bind      terms.py, errors.py  what is set, and what goes wrong
    plan.py        which parts; cut.py cuts them (sandbox)     papers.py  what is kept between attempts
    errand.py      one reading under way                       watch.py, patience.py  following its job
    cloud.py       the protocol v4; codes.py its error codes   selfhosted.py  the protocol of `mineru-api`
    protocol.py    what is asked of both                       jobs.py  what both speak of
    wire.py        HTTP, bounded
    unpack.py      the zip (sandbox)                           content.py  its list of blocks as pages

Nothing is imported here: the sandbox runs functions of this package and should load no more than it needs.
"""
