"""``python -m capeneuro``."""

import sys

from capeneuro.cli import main

sys.exit(main())
