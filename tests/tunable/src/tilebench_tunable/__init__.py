"""A DSL for the CPU whose kernels say how long they took, so that searches end the same way on any machine."""
