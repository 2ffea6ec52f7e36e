"""Run the command line with ``python -m pyagentd``."""

import sys

from pyagentd.cli import main

if __name__ == "__main__":
    sys.exit(main())
