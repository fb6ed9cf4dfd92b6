"""A tile DSL in a page: a kernel is written for one tile, and NumPy runs it for every point of a grid.

    @kernel
    def double(program, x, y, *, TILE):
        tile = program.load(x, (program.id(0),), (TILE,))
        program.store(y, (program.id(0),), 2 * tile)

    double.launch((grid,), x, y, TILE=1024)

Arrays are NumPy arrays; a tile that reaches over an array's edge is padded when loaded and clipped when stored.
"""

from __future__ import annotations

import dis
import inspect
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Launched", "Program", "TileError", "TileKernel", "kernel", "recording"]


class TileError(Exception):
    """The kernel is not one that this DSL can compile."""


@dataclass(frozen=True)
class Program:
    """What one run of a kernel sees: its place in the grid, and loads and stores of whole tiles."""

    place: tuple[int, ...]

    def id(self, axis: int) -> int:
        """The program's index along `axis` of the grid."""
        return self.place[axis]

    def load(self, array: np.ndarray, index: Sequence[int], shape: Sequence[int], padding: float = 0) -> np.ndarray:
        """The tile number `index` of `array`, [*shape] in the array's dtype; `padding` where it reaches over the edge."""
        part = array[_window(array, index, shape)]
        tile = np.full(shape, padding, dtype=array.dtype)
        tile[tuple(slice(0, extent) for extent in part.shape)] = part
        return tile

    def store(self, array: np.ndarray, index: Sequence[int], tile: np.ndarray) -> None:
        """Write `tile` as the tile number `index` of `array`, clipped at the edge and cast to the array's dtype."""
        window = _window(array, index, tile.shape)
        target = array[window]
        target[...] = tile[tuple(slice(0, extent) for extent in target.shape)]


def _window(array: np.ndarray, index: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(number * extent, number * extent + extent) for number, extent in zip(index, shape, strict=True))


@dataclass(frozen=True)
class Launched:
    """What a launch tells whoever records it: the kernel's name and its code."""

    name: str
    code: str


_LAUNCHED: list[Launched] | None = None


class recording:
    """Collect what is launched inside: `with recording() as launched: ...`."""

    def __enter__(self) -> list[Launched]:
        global _LAUNCHED
        _LAUNCHED = []
        return _LAUNCHED

    def __exit__(self, *_: object) -> None:
        global _LAUNCHED
        _LAUNCHED = None


class TileKernel:
    """A kernel's function, checked when it is decorated."""

    def __init__(self, function: Callable[..., None]) -> None:
        parameters = list(inspect.signature(function).parameters.values())
        if not parameters or parameters[0].name != "program":
            raise TileError(f"{function.__name__}: the first parameter of a kernel is `program`")
        self.function = function
        self.constants = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]

    def launch(self, grid: Sequence[int], *arrays: Any, **constants: int) -> None:
        """Run the kernel for every point of `grid`. Raises TileError for constants that are no powers of two."""
        for name in self.constants:
            if constants[name] & (constants[name] - 1) or constants[name] < 1:
                raise TileError(f"{self.function.__name__}: {name}={constants[name]} is no power of two")
        if _LAUNCHED is not None:
            listing = io.StringIO()
            dis.dis(self.function, file=listing)
            _LAUNCHED.append(Launched(self.function.__name__, listing.getvalue()))
        for place in np.ndindex(*grid):
            self.function(Program(place), *arrays, **constants)


def kernel(function: Callable[..., None]) -> TileKernel:
    """Make `function` a kernel."""
    return TileKernel(function)
