"""`python -m rocketstore.cli` is `rocketstore`."""

from __future__ import annotations

import sys

from rocketstore.cli import main

sys.exit(main())
