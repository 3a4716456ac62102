"""Tables in and out: reading files, encoding columns as numbers, and writing files whole or not at all.

May import: `errors` and `pages.text`; it knows nothing of models.
"""
