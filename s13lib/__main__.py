"""``python -m s13lib``: the lesson's script."""

import sys

from s13lib.cli import main

sys.exit(main())
