"""The configuration that `tilebench run` composes; a package so that it can be installed and found."""
