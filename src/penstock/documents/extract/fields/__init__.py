"""Fields: fill a JSON Schema from a document by its labels, without a model and without guessing.

    schema.py           a JSON Schema as a tree of leaves, objects and arrays (schema_tree.py)
    label_keys.py       when two labels are equal           label_index.py   from a label to the leaves of the schema
    layout.py           a page as lines and tables (markdown.py); rebuild_tables.py joins tables that were split
    collect.py          page by page, the candidate values next to each label
        key_value.py    in the label's own line             sections.py      which party or object a line belongs to
        adjacent.py     right of it or below it             arrays.py        tables that become arrays
        values.py       text as a value that fits its schema (numbers.py, magnitudes.py, dates.py)
        candidates.py   the best candidate of each leaf     continuation_rows.py   rows that continue the row above
    find.py             the entry point, which runs in the sandbox

A value is taken when a label of its leaf is next to it and it satisfies its own part of the schema. Where two values of
the same rank differ, neither is taken, and the pointer is reported as ambiguous. What was not found is null.
"""
