"""The commands of the command line: each module has `add_arguments(parser)` and `run(arguments) -> exit code`.

Importing one is light; what it needs is imported when it runs.
"""
