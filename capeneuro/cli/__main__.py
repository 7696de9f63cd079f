"""``python -m capeneuro.cli``."""

import sys

from capeneuro.cli.command_line import main

if __name__ == "__main__":
    sys.exit(main())
