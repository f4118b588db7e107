"""Operators of torch that no formula explains, and why. In a report they stand under `uncounted`, never as a silent zero."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["OPENED", "UNEXPLAINED"]

_BY_LABELS = "how much there is to do follows from the labels' values, not from a shape"
_TESTS = "torch's own tests use it; no program does"
_COMPILERS = (
    "torch's compiler makes it for graphs of its own; what it compiles runs as it was written while it is counted"
)
_BY_NUMBERS = "how many steps it takes follows from the numbers in the matrix"

UNEXPLAINED: Mapping[str, str] = {
    **dict.fromkeys(
        ("aten::_ctc_loss", "aten::_ctc_loss_backward", "aten::_cudnn_ctc_loss", "aten::miopen_ctc_loss",
         "aten::multilabel_margin_loss_forward", "aten::multilabel_margin_loss_backward"), _BY_LABELS),
    **dict.fromkeys(
        ("aten::_foobar", "aten::_test_autograd_multiple_dispatch", "aten::_test_autograd_multiple_dispatch_view_copy",
         "aten::_test_functorch_fallback", "aten::_test_optional_filled_intlist", "aten::_test_optional_floatlist",
         "aten::_test_optional_intlist", "aten::_test_parallel_materialize", "aten::_test_warn_in_autograd"), _TESTS),
    "aten::_fused_moving_avg_obs_fq_helper": "an observer's running minimum and maximum and a fake quantisation, switched by numbers in tensors",
    "aten::_fused_moving_avg_obs_fq_helper_functional": "an observer's running minimum and maximum and a fake quantisation, switched by numbers in tensors",
    "torchvision::nms": "how many boxes are compared follows from which of them overlap",
    "torchvision::qnms": "how many boxes are compared follows from which of them overlap",
    "aten::linalg_matrix_exp": f"{_BY_NUMBERS}; on a real device the products inside are counted",
    "aten::_spsolve": "how many numbers a sparse factor has follows from where the zeros are",
    **dict.fromkeys(
        ("prims::_low_memory_max_pool_offsets_to_indices", "prims::_low_memory_max_pool_with_offsets",
         "prims::_low_memory_max_pool2d_offsets_to_indices", "prims::_low_memory_max_pool2d_with_offsets",  # in torch 2.6
         "prims::_unsafe_index_put_", "prims::inductor_cvt_e8m0_rceil", "prims::inductor_force_stride_order", "prims::inductor_rand_eager_offset",
         "prims::inductor_rand_eager_offsets", "prims::prepare_softmax_online"), _COMPILERS),
    "aten::_cslt_sparse_mm_search": "it tries kernels, and returns the number of one",
    **dict.fromkeys(("torchvision::roi_pool", "torchvision::_roi_pool_backward", "torchvision::ps_roi_pool",
                     "torchvision::_ps_roi_pool_backward"), "how many pixels a box covers follows from the boxes"),
}  # fmt: skip

# Their kernels call others, which are counted; the rest of the list is not looked into, for what is seen there is not all.
OPENED = frozenset(("aten::linalg_matrix_exp",))
