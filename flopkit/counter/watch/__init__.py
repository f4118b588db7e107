"""Seeing a program run: every operator as it is called, in which thread, for which module, in which pass.

- `mode` is the dispatch mode that torch calls for each operator: it has a formula's result taken from the `cache`, or looks inside (`decompose`).
- `state` is what is known of one thread. Its `phase_and_scope` decides the phase, from what `autograd` is differentiating, the optimiser's
  steps under way and the Python stack; `modules` names the module.
- `attention` is a call of attention as a whole (`attention_calls` reads its arguments), `flex` is FlexAttention.
- `patches` is all that is changed in torch and in Python while somebody counts, and put back in the end (`changes`): the call of a module, the
  backward pass of a custom function, steps of optimisers, compiled functions (`compiler`, too), higher-order operators, modes of fake
  tensors; attention's own kernel (`attention`), starting a thread or a task (`threads`), launches without an operator (`launches`).

Names that torch does not publish stand in this folder alone, those that several files need in `internals` and `autograd`; but what
describes an operator or a tensor (``_schema``, ``_values``) any file may use.
"""
