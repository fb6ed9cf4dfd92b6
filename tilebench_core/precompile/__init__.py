"""Compiling ahead: the planned kernels are compiled side by side, into the DSLs' own disk caches, before the first runs.

Compilers take seconds and one core each, so a campaign that compiled as it went would leave both the GPU and most cores
idle. What is compiled here is what the worker asks its cache for later; a kernel that fails here fails there too, and is
recorded there.
"""
