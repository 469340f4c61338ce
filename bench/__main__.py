"""`python -m bench` from the checkout."""

import sys

from bench.run import main

sys.exit(main())
