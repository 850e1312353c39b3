"""Asking a model about a document: values in, values out; nobody is called from here.

The way of one question: `chunks.py` cuts the text, `prompts.py` puts the question, `strict.py` and `relaxed.py` make
the schemas that go along, `answers.py` reads what comes back (`pieces.py` finds the JSON in it, `absent.py` takes the
nulls away that say nothing), `merge.py` makes one value of many. `facets.py` is how a schema is looked into,
`options.py` what a rule may say about all this.
"""
