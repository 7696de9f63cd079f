"""The papers' command line, in a child of the warm process if a run has one."""

import sys

from capeneuro import warm

if __name__ == "__main__":
    sys.exit(warm.main("papers.commands"))
