"""The TileLang backend of TileBench."""
