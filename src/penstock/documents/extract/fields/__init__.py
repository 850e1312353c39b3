"""Fields: a JSON Schema is filled from a document by its labels. No model is asked, and nothing is guessed.

    schema.py   the schema as a tree of what is wanted (tree.py)
    words.py    when two labels are the same; labels.py which label means which wanted value
    layout.py   a page as lines and tables (markdown.py), its tables put together where they were cut (regrid.py)
    gather.py   page by page, every label that is met offers what stands by it
        cut.py       in its own line          sections.py  whose part of the document it is
        beside.py    right of it, below it    rows.py      tables that become arrays
        values.py    text as a value that fits its schema (numbers.py, magnitudes.py, dates.py)
        best.py      which offer wins, or that none does
        rests.py     rows that may only be the rest of the row above
    numerals.py how this document writes numbers, by all of them
    find.py     the whole, as the one function that runs in the sandbox

A value is taken when it stands by a label that means it, and when it satisfies its own part of the schema. Where two
values of the same standing differ, neither is taken and the pointer is told as ambiguous. What was not found is null.
"""
