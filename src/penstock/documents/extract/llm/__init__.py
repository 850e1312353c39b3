"""Extraction with a language model, without the calls to it: values in, values out.

chunks.py            split the text of a document
prompts.py           the prompts, in which a document is data and never an instruction
schema_variants.py   the strict schema for structured output, the relaxed one for a part of a document
responses.py         parse and validate a response
    json_candidates.py   find the JSON in it       optional_nulls.py   drop nulls that mean "absent"
merge.py             merge the results of the parts
options.py           the options of a rule that concern the model
"""
