"""PDF: a survey of the file, then the text layer of its pages as markdown.

survey.py           opens the file, counts its pages, lists pages whose text may differ from what they show
text_layer.py       reads the text layer of a range of pages
trust.py            decides whether a text layer can be trusted; a page that fails goes to OCR
hidden_text.py      counts characters that a reader of the page cannot see
parsed_page.py      the parser's text runs as regions in reading order
missing_runs.py     restores runs that the parser drops
tables.py           rebuilds tables whose cells and runs disagree
table_rows.py       splits rows that are a block of labels beside a block of values
aligned_tables.py   merges regions that are one table
markdown.py         headings, lists and paragraphs of a range of pages
bold.py             how far a line that begins in bold stays bold
"""
