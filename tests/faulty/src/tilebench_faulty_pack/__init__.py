"""Operators whose kernels misbehave on purpose."""
