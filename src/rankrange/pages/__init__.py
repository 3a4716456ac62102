"""HTML pages: the page shell, templates, charts, escaping, and values as text.

May import: `errors`. This package does not depend on the contents of the pages.
"""
