"""What a PyTorch program really does: FLOPs and bytes by operator, module and phase.

A number travels like this. `watch` sees each operator as it runs (and `regions` sees attention before it is taken apart); `operators`
says which of four things it is, counted, element-wise, free or unknown, and what it costs as a `work.Work`; `places` and `phases` say
for which module and in which pass it ran; a `ledger` adds up; a `report.Report` reads the ledger under a convention.
"""
