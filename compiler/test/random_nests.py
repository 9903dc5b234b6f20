#!/usr/bin/env python3
"""Random loop nests, compiled with and without the pass; the outputs must be
the same bit by bit.

    random_nests.py CLANG PLUGIN RUNTIME SEED COUNT

Each program has several nests over arrays in memory, every other one over arrays in mapped
files, which can be given back without swap: up to four loops, steps
forwards and backwards, triangular and symbolic bounds, loops that run no times or are left early,
strides across rows, offsets, indirect references, remainders, conditions, sums,
copies and fills, calls that are not inlined, and nests inside whose bounds are known
only there (rows of a sparse matrix), gone over several times. Many nests are put into
one file, so that COUNT programs take few compilations. A seed makes the same programs again; it
is printed with whatever fails.
"""
import json
import os
import random
import subprocess
import sys
import tempfile

PROGRAMS_PER_FILE = 100
PROGRAMS_TICK = 20  # of so many at least one ticks
ROWS, COLUMNS = 37, 1153  # an array of 341 KB; rows are no multiple of a page
CELLS = ROWS * COLUMNS


class Nest:
    def __init__(self, rng):
        self.rng = rng
        self.lines = []
        self.loops = []  # (name, most that it gets to)

    def bound(self, most):
        """An upper bound, known or not."""
        n = self.rng.randint(1, most)
        if self.rng.random() < 0.08:  # the loop runs no times
            return f"opaque({self.rng.choice([0, -1, -2])})", n
        return self.rng.choice([str(n), f"opaque({n})", f"opaque({n})"]), n

    def index(self):
        """A cell that is surely inside."""
        names = [name for name, most in self.loops]
        kind = self.rng.random()
        rows = [name for name, most in self.loops if most < ROWS]
        if len(names) >= 2 and rows and kind < 0.5:
            row = self.rng.choice(rows)
            column = self.rng.choice([name for name in names if name != row])
            text = f"{row} * {COLUMNS} + {column}"
        elif kind < 0.75:
            name = self.rng.choice(names)
            text = f"{name} * {COLUMNS if name in rows else self.rng.choice([1, 1, 2, 3, 5])}"
        else:
            text = " + ".join(names)
        if self.rng.random() < 0.3:
            text += f" + {self.rng.randint(-3, 3) + 4}"
        kind = self.rng.random()
        if kind < 0.06:
            return f"({text}) * {self.rng.choice([3, 5, 7, 119])} % divisor"
        if kind < 0.1:
            return f"(unsigned)({text}) * 2654435761u % (unsigned)divisor"
        return f"({text}) % {CELLS}" if kind < 0.2 else f"({text})"

    def cell(self):
        index = self.index()
        if self.rng.random() < 0.2:
            return f"{self.rng.choice('abc')}[where[{index}]]"
        return f"{self.rng.choice('abc')}[{index}]"

    def expression(self):
        terms = [self.cell() for _ in range(self.rng.randint(1, 3))]
        return self.rng.choice([" + ", " - ", " * 0.5 + "]).join(terms)

    def statement(self, depth):
        pad = "    " * depth
        kind = self.rng.random()
        target = f"{self.rng.choice('abc')}[{self.index()}]"
        if kind < 0.45:
            self.lines.append(f"{pad}{target} = 0.25 * ({self.expression()}) + 1;")
        elif kind < 0.7:
            self.lines.append(f"{pad}s += {self.expression()};")
        elif kind < 0.8:
            self.lines.append(f"{pad}if ({self.cell()} > 1) {target} *= 0.5;")
        elif kind < 0.87:
            self.lines.append(f"{pad}{target} = opaque_double({self.cell()});")
        elif kind < 0.89:
            self.lines.append(f"{pad}if (zero) s += a[({self.index()}) % zero];")
        elif kind < 0.93:
            self.lines.append(f"{pad}where[{self.index()}] = (int)({self.index()}) % {CELLS};")
        else:
            self.lines.append(f"{pad}if ({self.cell()} < -1e300) break;")

    def loop(self, depth, room):
        name = "ijkl"[depth - 1]
        most = min(room, self.rng.choice([3, 9, ROWS - 8, 300, COLUMNS - 8]))
        text, most = self.bound(max(1, most))
        kind = self.rng.random()
        pad = "    " * depth
        if kind < 0.55:
            head = f"for (long {name} = 0; {name} < {text}; ++{name})"
        elif kind < 0.7:
            head = f"for (long {name} = {text}; {name} >= 0; --{name})"
        elif kind < 0.8:
            head = f"for (long {name} = 1; {name} <= {text}; {name} += {self.rng.randint(2, 7)})"
        elif kind < 0.9 and self.loops:
            head = f"for (long {name} = 0; {name} < {text} && {name} <= {self.loops[-1][0]}; ++{name})"
        else:
            head = f"for (int {name} = 0; {name} < (int){text}; ++{name})"
        self.loops.append((name, most + 1))
        self.lines.append(f"{pad}{head} {{")
        for _ in range(self.rng.randint(0, 1)):
            self.statement(depth + 1)
        if depth < 4 and self.rng.random() < 0.65:
            used = 1
            for _, m in self.loops:
                used *= m
            self.loop(depth + 1, max(1, 40000 // used))
        else:
            for _ in range(self.rng.randint(1, 3)):
                self.statement(depth + 1)
        self.lines.append(f"{pad}}}")
        self.loops.pop()


class Matrix:
    """Rows whose ends are read from memory, several passes over them: many short ones
    that are one walk, or few long ones, forwards or backwards, in one loop together
    with others."""

    def __init__(self, rng):
        self.rng = rng
        self.width = rng.choice([1, 2, 2, 4, 9, 40, 700, 9000])
        self.rows = CELLS // self.width - 1

    def cell(self):
        return self.rng.choice(["a[k]", "b[k]", "d[16 * k]", "d[16 * k + 9]", "b[where[k]]",
                                "c[where[k]]", "c[i]", "a[2 * i]", "b[k * 7 % divisor]"])

    def statement(self):
        return self.rng.choice([
            f"s += {self.cell()} * {self.cell()};",
            f"s += {self.cell()};",
            f"c[k] = 0.5 * {self.cell()} + {self.cell()};",
            f"a[k] += {self.cell()};",
            f"d[16 * k] += {self.cell()};",
            f"b[where[k]] = {self.cell()};",
            f"c[i] = 0.5 * c[i] + {self.cell()};",
            f"if ({self.cell()} > 0.5) a[k] = s;",
            f"if ({self.cell()} < -1e300) break;",
            f"s = opaque_double(s) + {self.cell()};",
            f"where[k] = (int)(k * 5 % {CELLS});",
        ])

    def inner(self):
        head = self.rng.choice([
            "for (long k = ends[i]; k < ends[i + 1]; ++k)",
            "for (long k = ends[i]; k < ends[i + 1]; ++k)",
            "for (long k = ends[i + 1] - 1; k >= ends[i]; --k)",
            f"for (long k = ends[i]; k < ends[i + 1]; k += {self.rng.randint(2, 3)})",
            "for (long k = i; k < i + where[i] % 20; ++k)",
        ])
        lines = ["            double s = 0;"] if self.rng.random() < 0.5 else []
        lines.append(f"            {head} {{")
        lines += [f"                {self.statement()}" for _ in range(self.rng.randint(1, 3))]
        lines.append("            }")
        lines.append(self.rng.choice(["            c[i] = s;", "            a[2 * i] += s;", ""]))
        return ["        {"] + lines + ["        }"]

    def lines(self):
        rows = min(self.rows, self.rng.choice([3, 60, 1000, 20000, 20000]))
        count = self.rng.choice([f"{rows}", f"opaque({rows})"])
        # One nest over all passes, or one that begins anew with each.
        passes = self.rng.choice(["pass", "opaque(pass)", "opaque(pass)"])
        head = self.rng.choice([f"for (long i = 0; i < {count}; ++i)",
                                f"for (long i = 0; i < {count}; ++i)",
                                f"for (long i = {count} - 1; i >= 0; --i)",
                                f"for (int i = 0; i < (int){count}; i += 2)"])
        lines = [f"    for (long i = 0; i <= {self.rows}; ++i)",
                 f"        ends[i] = i * {self.width} + i * 7919 % {self.width};",
                 f"    for (int pass = 0; {passes} < {self.rng.randint(1, 3)}; ++pass)",
                 f"        {head} {{"]
        for _ in range(self.rng.choice([1, 1, 1, 2])):
            lines += self.inner()
        if self.rng.random() < 0.2:
            lines.append("            if (a[2 * i] < -1e300) break;")
        lines.append("        }")
        return lines


def program(rng, number):
    text = [f"static void nest{number}(double *restrict a, double *b, double *c, int *where,",
            "        long *restrict ends, double *restrict d) {",
            f"    long divisor = opaque({rng.randint(1, CELLS)}), zero = opaque(0);",
            "    double s = 0;"]
    for _ in range(rng.randint(1, 3)):
        kind = rng.random()
        if kind < 0.08:
            text.append(f"    memset(a, 0, 8 * (size_t)opaque({rng.randint(1, CELLS)}));")
        elif kind < 0.16:
            text.append(f"    memcpy(b, c, 8 * (size_t)opaque({rng.randint(1, CELLS)}));")
        if rng.random() < 0.25:
            text += Matrix(rng).lines()
            continue
        nest = Nest(rng)
        nest.loop(1, 1200)
        text += nest.lines
    text += ["    a[0] += s;", "}"]
    return "\n".join(text)


HEAD = """#include <fcntl.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define CELLS %d
#define ROOM (2 * CELLS)
__attribute__((noinline)) static long opaque(long n) { __asm__("" : "+r"(n)); return n; }
__attribute__((noinline)) static double opaque_double(double x) { __asm__("" : "+x"(x)); return x; }
""" % CELLS

TAIL = """
static void *array(const char *file, size_t bytes) {
    if (!file) return calloc(1, bytes);
    int fd = open(file, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) exit(2);
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED || close(fd) != 0) exit(2);
    return at;
}
static void digest(uint64_t *h, const void *from, size_t bytes) {
    const uint32_t *word = from;
    for (size_t i = 0; i < bytes / 4; ++i) *h = (*h ^ word[i]) * 0x100000001b3u;
}
int main(void) {
    enum { ARRAYS = 6 };
    static const char *const files[] = {"a", "b", "c", "where", "ends", "d"};
    static const size_t bytes[] = {ROOM * 8, ROOM * 8, ROOM * 8, ROOM * 4, ROOM * 8, 16 * CELLS * 8};
    void *arrays[2][ARRAYS];
    for (int k = 0; k < ARRAYS; ++k) {
        arrays[0][k] = array(NULL, bytes[k]);
        arrays[1][k] = array(files[k], bytes[k]);
    }
    for (unsigned n = 0; n < sizeof(nests) / sizeof(*nests); ++n) {
        void **of = arrays[n %% 2];
        double *a = of[0], *b = of[1], *c = of[2], *d = of[5];
        int *where = of[3];
        long *ends = of[4];
        for (long i = 0; i < ROOM; ++i) {
            a[i] = (double)(i %% 977) / 977; b[i] = (double)(i %% 379) / 379 - 0.5;
            c[i] = 1.0 / (double)(i + 1); where[i] = (int)((i * 7919L) %% CELLS);
        }
        for (long i = 0; i < CELLS; ++i) d[16 * i] = d[16 * i + 9] = (double)(i %% 613) / 613 - 0.25;
        nests[n](a, b, c, where, ends, d);
        uint64_t h = 14695981039346656037u;
        digest(&h, a, ROOM * 8); digest(&h, b, ROOM * 8); digest(&h, c, ROOM * 8);
        digest(&h, where, ROOM * 4); 
        for (long i = 0; i < CELLS; ++i) digest(&h, &d[16 * i], 8);
        printf("%%u %%016lx\\n", n, h);
    }
}
"""


def nest_table(numbers):
    parameters = "double *, double *, double *, int *, long *, double *"
    return f"\nstatic void (*const nests[])({parameters}) = {{" + ", ".join(
        f"nest{n}" for n in numbers) + "};"


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def without_hints(statistics, programs):
    """Why the programs of a file say nothing about the layer: it was off, or no nest
    ticked, or nothing was given back. Of a few programs none need be long enough. None:
    they do."""
    if not os.path.exists(statistics):
        return "no statistics" if programs >= PROGRAMS_TICK else None
    with open(statistics) as text:
        counters = json.load(text)
    os.remove(statistics)
    if "off" in counters:
        return counters["off"]
    if programs < PROGRAMS_TICK:
        return None
    if counters["ticks"] == 0:
        return "no ticks"
    return "nothing was released" if counters["pages"]["released"] == 0 else None


def main():
    clang, plugin, runtime, seed, count = sys.argv[1:]
    seed, count = int(seed), int(count)
    differing = 0
    # Files in memory (tmpfs) would be swapped, as memory is.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        source = os.path.join(scratch, "nests.c")
        statistics = os.path.join(scratch, "statistics")
        for first in range(0, count, PROGRAMS_PER_FILE):
            numbers = range(first, min(first + PROGRAMS_PER_FILE, count))
            rng = random.Random(seed * 1_000_003 + first)
            text = HEAD + "\n".join(program(rng, n) for n in numbers)
            text += nest_table(numbers)
            with open(source, "w") as out:
                out.write(text + TAIL.replace("%%", "%"))
            outputs = []
            level = rng.choice(["-O1", "-O2", "-O2", "-O3", "-Oz"])
            for extra in [[], [f"-fpass-plugin={plugin}", runtime, "-pthread"]]:
                program_file = os.path.join(scratch, "nests")
                built = run([clang, level, "-w", "-std=gnu11", source, "-o", program_file] + extra)
                if built.returncode != 0:
                    print(f"seed {seed}, file {first}: does not compile\n{built.stderr[-3000:]}")
                    return 1
                # A small memory, so that windows are short and releases happen.
                outputs.append(run([program_file], cwd=scratch,
                                   env={"RUNAHEAD_CC_MEMORY": "1M",
                                        "RUNAHEAD_CC_STATS": statistics}))
            plain, hinted = outputs
            if plain.returncode != hinted.returncode or plain.stdout != hinted.stdout:
                keep = os.path.join(os.getcwd(), f"nests-{seed}-{first}.c")
                os.replace(source, keep)
                lines = [n for n, (x, y) in enumerate(zip(plain.stdout.split("\n"),
                                                          hinted.stdout.split("\n"))) if x != y]
                print(f"seed {seed}, file {first} {level}: {plain.returncode} {hinted.returncode}, "
                      f"differing nests {[first + n for n in lines[:5]]}, kept as {keep}")
                differing += max(1, len(lines))
            elif len(plain.stdout.split()) != 2 * len(numbers):
                print(f"seed {seed}, file {first}: not all nests ran ({plain.returncode})")
                return 1
            elif why := without_hints(statistics, len(numbers)):
                print(f"seed {seed}, file {first} {level}: ran without hints: {why}")
                return 1
    print(f"{count} random programs, seed {seed}: {differing} differ")
    return 1 if differing else 0


sys.exit(main())
