"""For every tier."""

from __future__ import annotations

import signal

# A shell that starts the tests in the background has them ignore SIGINT, and what they start would
# inherit that. A handler, unlike an ignored signal, is reset to the default in a new program.
signal.signal(signal.SIGINT, signal.default_int_handler)
