"""What a PyTorch program really does: FLOPs and bytes by operator, module and phase.

A number travels like this. `watch` sees each operator as it runs; `operators` says which of four things it is, counted, element-wise,
free or unknown, and what it costs as a `work.Work`; `here`, `places` and `phases` say in which thread, for which module and in which
pass it ran; a `ledger` adds up; a `report.Report` reads the ledger under a convention, `timing` turns it into time.

Some things do not show at the dispatcher and are seen elsewhere: attention before it is taken apart (`regions`, `attention_calls`,
`flex`), complex convolutions (`complexes`), eigenvalues (`spectra`), products of torch's first packed weights (`fbgemm`), Triton kernels
(`kernels`), control flow and subclasses (`inside`), modules, threads, optimisers and compiled functions (`patches`, which puts everything
back). `registry` keeps the formulas, ours and the user's; `peers` says what other counters would print, from what `layers` notes.
"""
