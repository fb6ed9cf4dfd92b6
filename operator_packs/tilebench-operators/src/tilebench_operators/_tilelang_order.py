"""In which order the tiles of a matrix are computed, as an argument of a TileLang kernel: `T.use_swizzle` would compile it in."""

from __future__ import annotations

from typing import Any

import tilelang.language as T

__all__ = ["tile_of"]


def tile_of(block: Any, m_tiles: Any, n_tiles: Any, group: Any) -> tuple[Any, Any]:
    """(m, n) of the tile of `block`: `group` rows of tiles at a time, column by column, there and back again.

    Neighbours in time are so neighbours in the matrix, and share operands in the L2 cache.
    """
    panel = block // (group * n_tiles)
    place = block % (group * n_tiles)
    rows = T.min(group, m_tiles - panel * group)
    column = place // rows
    return panel * group + place % rows, T.if_then_else(panel % 2 == 0, column, n_tiles - 1 - column)
