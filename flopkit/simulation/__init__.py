"""Many devices on one: a process plays a rank of a world of any size.

`ranks` is what a user enters. `answers` changes what torch.distributed would ask other ranks, or tensors that have no numbers.
"""
