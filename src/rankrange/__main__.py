"""`python -m rankrange` is the `rankrange` command."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
