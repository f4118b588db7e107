"""What only the book uses: its figures (`gallery`), its drawings, what stands around a number in a chapter (`lessons`), and the simulated clock
of chapter 11. Nothing else in flopkit imports it.
"""
