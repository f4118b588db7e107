"""``python -m flopkit devices | count | doctor | measure | record``: see `flopkit.cli`."""

import sys

from flopkit.cli import main

if __name__ == "__main__":
    sys.exit(main())
