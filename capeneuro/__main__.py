# PYTHON_ARGCOMPLETE_OK
"""``python -m capeneuro``, and the command ``capeneuro``."""

import sys

from capeneuro import machine


def main() -> int:
    """Run the command line; an interruption of its imports is no traceback, either."""
    try:
        from capeneuro import warm
    except KeyboardInterrupt:
        print(machine.INTERRUPTED, file=sys.stderr)
        return 130
    return warm.main()


if __name__ == "__main__":
    sys.exit(main())
