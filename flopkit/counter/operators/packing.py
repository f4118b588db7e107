"""Weights that are brought into a kernel's own layout: movement without arithmetic, once before a program runs."""

from __future__ import annotations

from flopkit.counter.calls import Call
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, free

__all__: list[str] = []

_QUANTISED = (
    "linear_prepack linear_prepack_fp16 linear_prepack_legacy linear_prepack_fp16_legacy linear_unpack linear_unpack_fp16 conv_prepack "
    "conv1d_prepack conv2d_prepack conv3d_prepack conv_transpose1d_prepack conv_transpose2d_prepack conv_transpose3d_prepack "
    "conv1d_unpack conv2d_unpack conv3d_unpack conv_transpose1d_unpack conv_transpose2d_unpack conv_transpose3d_unpack conv_unpack "
    "make_quantized_cell_params make_quantized_cell_params_dynamic make_quantized_cell_params_fp16"
).split()
_UNDERSCORED = (
    "linear_prepack linear_prepack_fp16 linear_prepack_legacy linear_prepack_fp16_legacy conv2d_prepack conv3d_prepack "
    "conv_transpose1d_prepack conv_transpose2d_prepack conv_transpose3d_prepack wrapped_fbgemm_pack_gemm_matrix_fp16 "
    "_wrapped_linear_prepack"
).split()


@explains(
    *(f"quantized::{name}" for name in _QUANTISED),
    *(f"_quantized::{name}" for name in _UNDERSCORED),
    "onednn::qlinear_prepack",
    "onednn::qconv_prepack",
    "onednn::linear_prepack_fp16",
    "mkldnn::_reorder_linear_weight",
    "mkldnn::_reorder_convolution_weight",
    "mkldnn::_reorder_convolution_transpose_weight",
    "mkldnn::_reorder_mkldnn_rnn_layer_weight",
    "mkldnn_prepacked::conv2d_prepack",
    "mkl::_mkl_reorder_linear_weight",
    "aten::mkldnn_reorder_conv2d_weight",
    "aten::mkldnn_reorder_conv3d_weight",
    "aten::_mkldnn_reshape",
    "aten::_convert_weight_to_int4pack",
    "aten::_convert_weight_to_int4pack_for_cpu",
    "aten::_dyn_quant_pack_4bit_weight",
    "aten::_cudnn_rnn_flatten_weight",
    "aten::_to_sparse_semi_structured",
    "aten::_cslt_compress",
    "aten::fbgemm_pack_gemm_matrix_fp16",
    "aten::fbgemm_pack_quantized_matrix",
)
def packed(call: Call) -> Work:
    """The weight is read, and written where the result is a tensor."""
    return free(call.bytes())
