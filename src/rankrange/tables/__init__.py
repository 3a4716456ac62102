"""Tables in and out: reading files, what columns mean, columns as numbers, and writing files whole or not at all.

May import: `errors`, `core.arrays` and `pages.text`; it knows nothing of models.
"""
