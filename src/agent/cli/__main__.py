"""`python -m agent.cli`: the command line without its console script."""

import sys

from agent.cli import main

sys.exit(main())
