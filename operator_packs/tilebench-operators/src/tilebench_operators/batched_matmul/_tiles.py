"""What the three backends share: an estimate of the time that a tile size costs, by which each chooses its default."""

import math

from tilebench_core import Case

MULTIPROCESSORS = 132  # of the H200


def estimate_us(case: Case, BM: int, BN: int, per_sm: int, pause_us: float = 1.5, ctas: int = 1) -> float:
    """Time beyond what all tiles have in common: rounds of resident tiles, and the way from the L2 cache.

    `per_sm` tiles are on a multiprocessor at once, or one on `ctas` of them, which share what they load. Between rounds
    there is a pause, shorter where programs stay and load ahead.
    """
    m = case["M"]
    n, k = case.params.get("N", m), case.params.get("K", m)
    m_tiles, n_tiles = math.ceil(m / BM), math.ceil(n / BN)
    tiles = case["BATCH"] * m_tiles * n_tiles
    places = MULTIPROCESSORS // ctas
    per_sm = min(per_sm, math.ceil(tiles / places))
    rounds = math.ceil(tiles / (places * per_sm))
    slowness = case.dtype_size / 2  # fp32 moves and multiplies at half the speed
    multiply_us = slowness * per_sm * BM * BN / ctas * k / 3.5e6
    travel_us = slowness * case["BATCH"] * k * (m * n_tiles + n * m_tiles) / 6e6
    start_us = (BM + BN / ctas) / 400  # to fill the first stages
    return start_us + rounds * multiply_us + (rounds - 1) * pause_us + travel_us
