"""Let ``python -m pyagentd`` be the command line."""

import sys

from pyagentd.cli import main

if __name__ == "__main__":
    sys.exit(main())
