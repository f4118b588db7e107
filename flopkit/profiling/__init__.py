"""Programs under the clock, operator by operator: what the profiler timed and what the counter counted, joined; and what could be gained.

`tracing` makes a trace, `events` reads it, `matching` finds the counter's call of each operator and what torch.compile made of others,
`joining` gives every second to a row, `rows` adds them up, `profile` shows them, `advising` says what could be changed, `comparing` what
came of it, and `running` is `flopkit.profile`.
"""

from flopkit.counter.running import in_order
from flopkit.profiling.profile import Profile
from flopkit.profiling.running import profile

__all__ = ["Profile", "in_order", "profile"]
