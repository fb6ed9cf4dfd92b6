"""The 45 operators of TileBench; each folder is one operator."""
