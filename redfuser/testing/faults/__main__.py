"""`python -m redfuser.testing.faults`: see `run`."""

import sys

from redfuser.testing.faults.run import main

if __name__ == "__main__":
    sys.exit(main())
