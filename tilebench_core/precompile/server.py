"""Imported first by the process that compilers are forked from: it hides the GPUs there and remembers the environment.

Some DSLs look at the GPU when they are imported. That would start CUDA in the server, and a process that is forked behind
CUDA's start cannot use PyTorch's CUDA functions any more. Nothing else may import this module.
"""

from __future__ import annotations

import os

__all__ = ["STARTED_WITH"]

os.environ["CUDA_VISIBLE_DEVICES"] = ""

STARTED_WITH = dict(os.environ)
"""The environment before a DSL was imported, which may add to it."""
