"""Seeing a program run: every operator as it is called, in which thread, for which module, in which pass.

- `mode` is the dispatch mode that torch calls for each operator. The `cache` has what a formula said of such a call; an operator without a
  formula is *opened*: its kernel runs with the mode on, and what it calls counts (`decompose`); `origins` tells whether that was all of it.
- `state` is what is known of one thread. Its `phase_and_scope` decides the phase, from what `autograd` is differentiating, the optimiser's
  steps under way and the Python stack; `modules` names the module. (`breakdown.parts` moves what a fused backward recomputes to its phase.)
- `attention` is a call of attention as a whole (`attention_calls` reads its arguments), `flex` is FlexAttention, `chunked` the backward pass
  of torch's chunked cross-entropy.
- `patches` changes torch while somebody counts, and `changes` puts all back: calls of modules, custom functions, optimisers, compiled
  functions (`compiler` lets a compiled function count), fake tensors, attention's kernel (`attention`), `threads`, `launches`.

Names that torch does not publish stand in this folder alone; but what describes an operator or a tensor (``_schema``) any file may use.
"""
