"""Random rows of a SQLite table, read through a memory mapping.

usage: sqlite.py fill FILE ROWS | sqlite.py get FILE ROWS GETS SEED
"""

import random
import sqlite3
import sys

command, path, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
if command == "fill":
    base = sqlite3.connect(path)
    base.execute("pragma journal_mode = off")
    base.execute("create table t (id integer primary key, data blob)")
    source = random.Random(1)
    base.executemany("insert into t values (?, ?)", ((i, source.randbytes(900)) for i in range(rows)))
    base.commit()
    base.close()
else:
    base = sqlite3.connect(f"file:{path}?immutable=1", uri=True)
    base.execute("pragma mmap_size = 8589934592")
    source, total = random.Random(int(sys.argv[5])), 0
    for _ in range(int(sys.argv[4])):
        found = base.execute("select data from t where id = ?", (source.randrange(rows),)).fetchone()
        total = (total * 31 + found[0][0]) % (1 << 61) if found else total
    print(total)
