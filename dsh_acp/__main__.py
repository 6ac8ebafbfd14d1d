"""`python -m dsh_acp`."""

import sys

from dsh_acp.cli import main

if __name__ == "__main__":
    sys.exit(main())
