# operator: matmul_fp32_fp16_fp8, backend: cutile
# cheat: ctypes calls cuBLAS
import cuda.tile as ct
import torch
import ctypes


@ct.kernel
def touch_kernel(x, y, TILE: ct.Constant[int]):
    ct.store(y, (0,), ct.load(x, (0,), (TILE,)))


CUBLAS = ctypes.CDLL("libcublas.so.12")


def run(a, b):
    c = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    ct.launch(torch.cuda.current_stream(), (1,), touch_kernel, (a.view(-1), c.view(-1), 16))
    CUBLAS.cublasGemmEx(ctypes.c_void_p(a.data_ptr()), ctypes.c_void_p(b.data_ptr()), ctypes.c_void_p(c.data_ptr()))
    return c
