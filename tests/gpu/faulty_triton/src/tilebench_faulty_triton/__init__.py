"""An operator whose Triton kernels misbehave on purpose."""
