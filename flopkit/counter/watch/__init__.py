"""Seeing a program run: every operator as it is called, in which thread, for which module, in which pass.

`mode` and `functions` are the modes that torch calls, and `modes` leaves them, also where others were entered since. `patches` is what
has to be changed in torch meanwhile and is put back: `module_calls`, `threads`, `fakes` and `scripts` (TorchScript)
are parts of that, `imports` waits for modules.
`state` is what is known of one thread: `modules` says for which module it works, `phases` in which pass, `autograd` what is being differentiated.
`signatures` tells calls that cost the same, `cache` keeps what they cost, `decompose` looks into subclasses and composite kernels.

Nowhere else in the counter a name is used that torch does not publish. `internals` holds those that are of no one file's own, and `compiler`
has the compiler of torch leave counting alone.
"""
