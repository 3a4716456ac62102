"""Reading and writing tables: file formats, column types, encoding of columns as numbers, and atomic writes.

May import: `errors`, `core.arrays` and `pages.text`. This package does not depend on models.
"""
