"""A gather of random rows through numpy.memmap.

usage: memmap.py FILE ROWS SEED
"""

import sys

import numpy

table = numpy.memmap(sys.argv[1], dtype=numpy.float32, mode="r")
table = table[: len(table) // 1024 * 1024].reshape(-1, 1024)
random = numpy.random.default_rng(int(sys.argv[3]))
rows = random.integers(0, len(table), int(sys.argv[2]))
gathered = table[rows, :16]
print(f"{gathered.shape} {numpy.asarray(gathered, dtype=numpy.float64).sum():.9e}")
