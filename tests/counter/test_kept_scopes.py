"""What is remembered of modules that are gone: a scope that another module has taken over keeps none of the old ones' numbers."""

import torch

from flopkit.counter.watch import modules


def test_a_scope_that_went_over_to_another_module_is_forgotten_under_its_old_number():
    known, scope = {}, modules.Scope("(Linear)")
    living = [torch.nn.Identity() for _ in range(64)]
    for module in living:
        scope.module = lambda module=module: module
        modules._keep(known, module, scope)
    assert list(known) == [id(living[-1])]
