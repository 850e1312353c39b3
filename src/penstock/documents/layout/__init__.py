"""From lines with boxes to markdown, shared by the PDF text layer and OCR.

lines.py        lines, table cells and the regions that hold them
paragraphs.py   which lines form a paragraph
columns.py      columns of a table, by where boxes overlap
markdown.py     headings, lists and text of a page
"""
