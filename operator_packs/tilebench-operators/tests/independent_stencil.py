"""Convolutions, pooling and stencils in NumPy, by windows over a padded array and one contraction."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def convolution(x, weight, stride, padding, groups):
    """Any number of spatial axes: x [N, Cin, *spatial], weight [Cout, Cin / groups, *taps]."""
    spatial = weight.ndim - 2
    padded = np.pad(x, [(0, 0), (0, 0)] + [(padding, padding)] * spatial)
    windows = sliding_window_view(padded, weight.shape[2:], axis=tuple(range(2, 2 + spatial)))
    windows = windows[(slice(None), slice(None), *[slice(None, None, stride)] * spatial)]
    parts = []
    for part, kernels in zip(np.split(windows, groups, axis=1), np.split(weight, groups, axis=0), strict=True):
        axes = [1, *range(2 + spatial, 2 + 2 * spatial)]
        product = np.tensordot(part, kernels, axes=(axes, list(range(1, kernels.ndim))))
        parts.append(np.moveaxis(product, -1, 1))
    return np.concatenate(parts, axis=1)


def max_pooling(x, n, c, h, w, kernel_size, stride, padding):
    border = ((0, 0), (padding, padding), (padding, padding))
    padded = np.pad(x.reshape(n * c, h, w), border, constant_values=-np.inf)
    windows = sliding_window_view(padded, (kernel_size, kernel_size), axis=(1, 2))[:, ::stride, ::stride]
    return windows.max(axis=(-2, -1)).ravel()


def gaussian_blur(x, kernel, rows, cols, krows, kcols):
    image, weights = x.reshape(1, 1, rows, cols), kernel.reshape(1, 1, krows, kcols)
    padded = np.pad(image, ((0, 0), (0, 0), (krows // 2, krows // 2), (kcols // 2, kcols // 2)))
    return convolution(padded, weights, 1, 0, 1).ravel()


def jacobi(x, rows, cols):
    out = x.copy()
    for row in range(1, rows - 1):
        for column in range(1, cols - 1):
            neighbours = (x[row - 1, column], x[row + 1, column], x[row, column - 1], x[row, column + 1])
            out[row, column] = sum(neighbours) / 4
    return out


INDEPENDENT = {
    "conv1d": convolution,
    "conv2d": convolution,
    "conv3d": convolution,
    "max_pool2d": max_pooling,
    "gaussian_blur": gaussian_blur,
    "jacobi_stencil_2d": jacobi,
}
