"""The command line: what a device can do, what a model costs, what a reported MFU
means, and what this machine does.

The same functions as in Python: `device`, `load`, `from_hf`, `doctor`,
`experiments.record`; and ``run``, which starts another program and attaches to it.
Results go to standard output, as tables or, with ``--json``, as one JSON object. Bad
input is one line on standard error, and the exit code is 2; where some experiments
failed, or a count differs from the hardware's counters, it is 1.
"""

from flopkit.cli.program import main

__all__ = ["main"]
