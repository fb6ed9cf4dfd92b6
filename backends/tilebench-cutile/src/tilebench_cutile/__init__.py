"""The cuTile backend of TileBench."""
