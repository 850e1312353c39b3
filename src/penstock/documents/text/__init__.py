"""Formats that need no OCR: plain text, markdown, html, mail, csv, and the office formats.

document.py     outside the sandbox: detects the kind of a file, reads it batch by batch
batches.py      inside the sandbox: pages from a cursor on, as many as fit one answer
plain.py        text and markdown
encoding.py     detects the character encoding
html.py         web pages
mail.py         mail messages
csv_tables.py   csv and tsv
"""
