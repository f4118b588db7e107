"""Pictures that explain, one subject a file: what touches what, what is reused, what is skipped. Each function returns a `Drawing`."""

from flopkit.charts.drawings.drawing import Drawing
from flopkit.charts.drawings.products import bytes_and_flops, dot_product, matrix_product

__all__ = [
    "Drawing",
    "bytes_and_flops",
    "dot_product",
    "matrix_product",
]
