"""What the dispatcher does not show, or shows in pieces.

Attention as a whole (`regions`, by what its `attention_calls` say; `flex`), complex convolutions (`complexes`), eigenvalues without their
vectors (`spectra`), products of torch's first packed weights (`fbgemm`), Triton `kernels`. `assumed` is attention on meta, `scripts` is
TorchScript.

And what other counters go by: `layers`, and functions that are `called`, with the `shapes` of both, but not while `traced`. Layers that are
one function are called in a `plain` way. `filing` adds all of it up at the end.
"""
