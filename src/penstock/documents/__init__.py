"""Documents: how foreign files are read. Deps in, values out: no queue, no table, no room's word.

`ocr.py` and `shape.py` hold the two Protocols that stages work with: an `OCRProvider` turns a file into markdown and
pages, a `PostProcessor` turns those into JSON. `ground.py` says where on a page a text stands. `errors.py` is what can
be wrong with a file. Functions that touch foreign bytes run in the sandbox; `files.py` brings them the bytes.

    kinds.py        what kind a file is
    pdf.py          a first look at a PDF, which names pages whose text may lie
    text.py         its text layer
        text_real.py, text_hidden.py             whether it can be trusted, and what nobody can see of it
        text_lines.py, text_lost.py              its runs as lines, and those that the parser leaves out
        text_tables.py, text_rows.py, text_aligned.py   its tables, where the parser's own are wrong
        text_markdown.py, text_bold.py           its markdown
    rapid.py        OCR of the pictures that pages.py draws or decodes
        upright.py                               which way up a page lies
        layout.py, layout_sizes.py, layout_tables.py, layout_wraps.py   lines that were seen as a page
    lines.py, paragraphs.py, writing.py          what both ways share: lines become paragraphs, and these markdown
    flat.py, parts.py, blocks.py                 files that are text already, part by part
        office_*.py, html.py, mail.py, tables.py, plain.py   one file for each format
    extract/        JSON by a schema: fields/ by labels, without a model; llm/ with one
    grounding/      citations: the page and bounding box of each value
"""
