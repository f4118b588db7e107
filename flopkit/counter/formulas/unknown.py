"""Operators of torch that no formula explains, and why. In a report they stand under `uncounted`, never as a silent zero."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

# The reason, and the operators: `*` stands for anything. What has a formula, or only moves (a weight that is packed), fits none of them.
_REASONS = {
    "the work depends on the labels' values": "aten::_ctc_loss* aten::_cudnn_ctc_loss aten::miopen_ctc_loss aten::multilabel_margin_loss_*",
    "only torch's own tests use it": "aten::_foobar aten::_test_*",
    "it updates an observer and quantises, or not, depending on values in tensors": "aten::_fused_moving_avg_obs_fq_helper*",
    "the number of comparisons depends on which boxes overlap": "torchvision::*nms",
    "the number of corners depends on how the boxes overlap": "torchvision::box_iou_rotated",
    "the number of pixels in a box depends on the boxes":
        "torchvision::roi_pool torchvision::_roi_pool_backward torchvision::ps_roi_pool torchvision::_ps_roi_pool_backward",
    "the number of steps depends on the values of the matrix; on a real device the counter counts the products inside":
        "aten::linalg_matrix_exp",
    "few programs call it; on a real device the counter counts the factorisation and the products inside":
        "aten::linalg_polar aten::linalg_matrix_sqrth",
    "the size of a sparse factor depends on the positions of the zeros": "aten::_spsolve",
    "it times several kernels and returns the fastest one's number": "aten::_cslt_sparse_mm_search",
    "a kernel in a library's own layout, which few programs call by name; how large its packed tensors are does not show":
        "mkldnn::* mkldnn_prepacked::* mkl::* onednn::* aten::mkldnn_linear* aten::mkldnn_*pool*",
    "eight- or sixteen-bit arithmetic beyond linear layers, convolutions, products, sums and multiples":
        "quantized::* _quantized::* aten::fbgemm_* aten::quantized_lstm aten::quantized_gru",
    "few programs call it, and nobody has written its formula":
        "aten::glu_*jvp aten::_histogramdd_* aten::hash_tensor aten::renorm* aten::embedding_renorm* aten::*segment_reduce* "
        "aten::multi_margin_loss* aten::fractional_max_pool?d* aten::_upsample_lanczos2d_aa* aten::batch_norm_update_stats "
        "aten::_sparse_semi_structured_linear aten::_mixed_dtypes_linear aten::_triton_* torchvision::ps_roi_align torchvision::_ps_roi_align_backward "
        "torchvision::qroi_align "
        "aten::ormqr aten::linalg_ldl_factor_ex aten::linalg_ldl_solve aten::_fake_quantize_learnable_* aten::_dyn_quant_matmul_4bit "
        "aten::cudnn_affine_grid_generator* aten::_grid_sampler_2d_cpu_fallback*",
    "products of two lists of matrices, which few programs call; on a CPU the counter counts the products inside":
        "aten::_foreach_mm _native::_foreach_mm_*",
    "a matrix that keeps two numbers of four, which only some GPUs multiply; how wide it is does not always show in what is packed":
        "aten::_sparse_semi_structured_mm aten::_sparse_semi_structured_addmm aten::_cslt_sparse_mm",
    "a product and its communication in one kernel":
        "symm_mem::fused_all_gather_matmul symm_mem::fused_all_gather_scaled_matmul symm_mem::fused_matmul_reduce_scatter "
        "symm_mem::fused_scaled_matmul_reduce_scatter symm_mem::_async_input_mm",
    "the gates of an LSTMCell or GRUCell on a GPU, element by element; its two products are counted": "aten::_thnn_fused_*",
    "only Apple's GPUs run it, and this book has none to compare with": "aten::*_mps* aten::mps_* aten::max_pool2d_backward",
    "a backend's kernel, which programs reach through `aten::convolution`, and that is counted":
        "aten::miopen_conv* aten::miopen_depth* aten::_nnpack_* aten::*convolution*_overrideable",
}  # fmt: skip
UNEXPLAINED: Mapping[str, str] = {name: reason for reason, names in _REASONS.items() for name in names.split()}

# Their kernels call others, which are counted; the rest of the list is not looked into, for what is seen there is not all.
OPENED = frozenset(("aten::linalg_matrix_exp", "aten::linalg_polar", "aten::linalg_matrix_sqrth", "aten::_foreach_mm"))


def reason_for(name: str) -> str:
    """Why no formula explains the operator *name*; "" where one may.

    >>> reason_for("aten::_spsolve")
    'the size of a sparse factor depends on the positions of the zeros'
    """
    return next((reason for pattern, reason in UNEXPLAINED.items() if fnmatchcase(name, pattern)), "")
