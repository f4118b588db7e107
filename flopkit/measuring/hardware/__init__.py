"""Counters of the hardware as an oracle for the counter: what really ran, by Nsight Compute and GPM on a GPU and by perf on a CPU.

Nothing is imported here, since `cases` and `processor` are also run as programs of their own.
"""
