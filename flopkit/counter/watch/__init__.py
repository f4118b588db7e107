"""Seeing a program run: every operator as it is called, in which thread, for which module, in which pass.

`mode` is the dispatch mode that torch calls; it decides what is counted, opened or unknown. `patches` is what has to be changed in torch
meanwhile and is put back: `threads` and `launches` (what runs with no operator around it) are parts of that.
`state` is what is known of one thread, and in which phase it is: `modules` says for which module it works, `autograd` what is being
differentiated. `attention` is a call of attention as a whole, by what its `attention_calls` say; `flex` is FlexAttention.
`cache` keeps what calls cost, for those that cost the same, `decompose` looks into subclasses and composite kernels.

Nowhere else in the counter a name is used that torch does not publish. `internals` and `modes` hold those that are of no one file's own,
and `compiler` has the compiler of torch leave counting alone.
"""
