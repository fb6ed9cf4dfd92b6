"""A third distribution's backend for TileBench: `example`, a tile DSL that NumPy executes on the CPU."""
