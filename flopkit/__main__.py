"""``python -m flopkit devices | count | doctor | train | measure | record | run |
counters``: see `flopkit.cli`."""

import sys

from flopkit.cli import main

if __name__ == "__main__":
    sys.exit(main())
