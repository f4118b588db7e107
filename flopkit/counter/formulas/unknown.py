"""Operators of torch that no formula explains, and why. In a report they stand under `uncounted`, never as a silent zero."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

__all__ = ["OPENED", "UNEXPLAINED", "reason_for"]

_BY_LABELS = "the work depends on the labels' values"
_TESTS = "only torch's own tests use it"
_BY_NUMBERS = "the number of steps depends on the values of the matrix"
_OF_LIBRARY = "a kernel in a library's own layout, which few programs call by name; how large its packed tensors are does not show"

# By name, or by a pattern: `*` stands for anything. What has a formula, or only moves (a weight that is packed), fits none of them.
UNEXPLAINED: Mapping[str, str] = {
    **dict.fromkeys(
        ("aten::_ctc_loss", "aten::_ctc_loss_backward", "aten::_cudnn_ctc_loss", "aten::miopen_ctc_loss",
         "aten::multilabel_margin_loss_forward", "aten::multilabel_margin_loss_backward"), _BY_LABELS),
    **dict.fromkeys(
        ("aten::_foobar", "aten::_test_autograd_multiple_dispatch", "aten::_test_autograd_multiple_dispatch_view_copy",
         "aten::_test_functorch_fallback", "aten::_test_optional_filled_intlist", "aten::_test_optional_floatlist",
         "aten::_test_optional_intlist", "aten::_test_parallel_materialize", "aten::_test_warn_in_autograd"), _TESTS),
    "aten::_fused_moving_avg_obs_fq_helper": "it updates an observer and quantises, or not, depending on values in tensors",
    "aten::_fused_moving_avg_obs_fq_helper_functional": "it updates an observer and quantises, or not, depending on values in tensors",
    "torchvision::nms": "the number of comparisons depends on which boxes overlap",
    "torchvision::qnms": "the number of comparisons depends on which boxes overlap",
    "aten::linalg_matrix_exp": f"{_BY_NUMBERS}; on a real device the counter counts the products inside",
    "aten::_spsolve": "the size of a sparse factor depends on the positions of the zeros",
    "aten::_cslt_sparse_mm_search": "it times several kernels and returns the fastest one's number",
    **dict.fromkeys(("torchvision::roi_pool", "torchvision::_roi_pool_backward", "torchvision::ps_roi_pool",
                     "torchvision::_ps_roi_pool_backward"), "the number of pixels in a box depends on the boxes"),
    **dict.fromkeys(("mkldnn::*", "mkldnn_prepacked::*", "mkl::*", "onednn::*", "aten::mkldnn_linear*", "aten::mkldnn_*pool*"), _OF_LIBRARY),
    **dict.fromkeys(("quantized::*", "_quantized::*", "aten::fbgemm_*"),
                    "eight- or sixteen-bit arithmetic beyond linear layers, convolutions, LSTM and GRU, products, sums and multiples"),
    "aten::_thnn_fused_*": "the gates of an LSTMCell or GRUCell on a GPU, element by element; its two products are counted",
    **dict.fromkeys(("aten::*_mps*", "aten::mps_*", "aten::max_pool2d_backward"), "only Apple's GPUs run it, and this book has none to compare with"),
    **dict.fromkeys(("aten::miopen_conv*", "aten::miopen_depth*", "aten::_nnpack_*", "aten::*convolution*_overrideable"),
                    "a backend's kernel, which programs reach through `aten::convolution`, and that is counted"),
}  # fmt: skip

# Their kernels call others, which are counted; the rest of the list is not looked into, for what is seen there is not all.
OPENED = frozenset(("aten::linalg_matrix_exp",))


def reason_for(name: str) -> str:
    """Why no formula explains the operator *name*; "" where one may.

    >>> reason_for("aten::_spsolve")
    'the size of a sparse factor depends on the positions of the zeros'
    """
    return next((reason for pattern, reason in UNEXPLAINED.items() if fnmatchcase(name, pattern)), "")
