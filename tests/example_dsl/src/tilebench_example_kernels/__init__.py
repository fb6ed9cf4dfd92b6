"""Kernels in the example DSL for operators that other packs define. This pack defines none itself."""
