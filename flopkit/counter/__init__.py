"""What a PyTorch program really does: FLOPs and bytes by operator, module and phase.

A number travels like this. `running` is what a user calls. `watch` sees each operator as it runs, in which thread, for which module
and in which pass; `formulas` says which of four things it is, counted, element-wise, free or unknown, and what it costs as a `work.Work`;
a `ledger` adds up; a `report.Report` reads the ledger under a convention, by `breakdown` and in `printout`.

`registry` keeps the formulas, ours and the user's; `by_torch` says what torch's own counter would print of the same program.
"""
