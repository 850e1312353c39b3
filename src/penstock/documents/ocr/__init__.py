"""OCR: the provider port, and the local engine behind one of its implementations.

provider.py       the port: a document becomes markdown and pages
page_images.py    renders pages of a PDF and decodes pages of image files
engine.py         RapidOCR, loaded once per sandbox and forked per document
orientation.py    pages that are rotated or skewed
layout.py         recognized lines as a page: reading order, columns, tables, paragraphs
text_sizes.py     font sizes, estimated from the width of lines
tables.py         tables from lines that stand in rows and columns
wrapped_cells.py  table cells of several lines
"""
