"""All SQL of the tasks module, one file per noun; `tables.py` declares the tables."""
