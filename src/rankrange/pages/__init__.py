"""The shell of every HTML page and how values are shown as text: escaping, numbers, charts, templates.

May import: `errors`; it knows nothing of what is shown.
"""
