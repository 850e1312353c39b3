"""Extraction: a document and a JSON Schema in, a JSON value out.

    fields/   by the labels on the page, without a model
    llm/      with a language model: chunks, prompts, schema copies, response parsing, merging

Both packages are pure functions: no network, no database. `documents/grounding/` then cites each value's place.
"""
