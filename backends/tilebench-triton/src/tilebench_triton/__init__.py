"""The Triton backend of TileBench."""
