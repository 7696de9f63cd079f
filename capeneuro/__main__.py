"""``python -m capeneuro``."""

import sys

from capeneuro.warm import main

sys.exit(main())
