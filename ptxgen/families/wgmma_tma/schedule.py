"""How many CTAs share a tile along K (stream_k)."""

from __future__ import annotations

MOST_SHARERS = 14
"""CTAs that share a tile, in the mean. Shares are of one length, so 16 have a part of one at most, which is
what its counter has bits for."""
