"""Reading documents: pure functions and Protocols, with no queue, no table and no other module.

Functions that touch the bytes of a document run in the sandbox. `blob_files.py` opens blobs as local files for them,
and `sandbox_errors.py` turns a failed sandbox call into one of `errors.py`.

    kinds.py          which kind of file it is, by content and then by name
    page_reader.py    the port that surveys a document and reads stretches of its pages
    pages.py          pages, spans, bounding boxes, and the citation that links a value to its place on a page
    blocks.py         blocks (headings, paragraphs, lists, tables) written as pages of markdown
    pdf/              PDF: the survey of its pages and the text layer
    ocr/              OCR: the provider port, page images, the engine, orientation and deskew, page layout
    layout/           shared by pdf and ocr: lines, paragraphs and columns become markdown
    office/           docx, pptx, xlsx
    text/             plain text, html, mail, csv, and the reader of every format that needs no OCR
    extract/          JSON from pages: fields/ by labels, llm/ by a language model
    grounding/        citations for the values of a result
    chat_model.py     the port to a language model
    postprocessor.py  the port that turns pages into JSON
    rejections.py     how a function inside the sandbox rejects a file
"""
