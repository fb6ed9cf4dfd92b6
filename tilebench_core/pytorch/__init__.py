"""PyTorch as two backends, announced through the same entry points as everybody else's: `torch` and `torch_compile`."""
