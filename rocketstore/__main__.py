"""`python -m rocketstore` is `rocketstore`."""

from __future__ import annotations

import sys

from rocketstore.cli import main

sys.exit(main())
