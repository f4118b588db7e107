"""What the dispatcher does not show, or shows in pieces.

Attention as a whole (`regions`, by what its `attention_calls` say; `flex`), complex convolutions (`complexes`), eigenvalues without their
vectors (`spectra`), Triton `kernels`. `assumed` is attention on meta.
"""
