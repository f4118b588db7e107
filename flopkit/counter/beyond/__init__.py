"""What the dispatcher does not show, or shows in pieces.

Attention as a whole (`regions`, by what its `attention_calls` say; `flex`), complex convolutions (`complexes`), eigenvalues without their
vectors (`spectra`), products of torch's first packed weights (`fbgemm`), Triton `kernels`, and what other counters go by: `layers`, and functions that are `called`, with
the `shapes` of both, but not while `traced`. `assumed` is attention on meta, `scripts` is TorchScript.
"""
