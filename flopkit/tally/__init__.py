"""Counting by doing: numbers that have their arithmetic counted, and naive algorithms to run on them.

The closed forms of `flopkit.layers` are checked against these loops, which know nothing of them. Every algorithm
takes the sizes of the formula of the same name, draws numbers, does the work one operation at a time, and returns the
`Ledger`; `ledger.inputs` and `ledger.output` hold the numbers, so that the result can be checked too.

>>> from flopkit import tally
>>> counted = tally.matmul(m=5, k=3, n=7)
>>> counted.multiplies, counted.adds, counted.flops
(105, 70, 210)

A contraction starts from its first product (K multiplications, K − 1 additions); a running sum or maximum of
element-wise work starts from 0 or −∞, as kernels do, and so takes one operation an element.
"""

from flopkit.tally.ledger import Ledger, Tally, contraction, counting, elementwise, numbers, plain
from flopkit.tally.products import dense, dot, matmul

__all__ = [
    "Ledger", "Tally", "contraction", "counting", "dense", "dot", "elementwise", "matmul", "numbers", "plain",
]  # fmt: skip
