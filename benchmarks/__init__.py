"""Measurements and outside data: speed side by side with other tools, cases, allocator traces."""
