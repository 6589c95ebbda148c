"""`python -m redfuser` is the command line."""

import sys

from redfuser.cli import main

sys.exit(main())
