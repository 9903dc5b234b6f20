import glob
import os

import lit.formats

config.name = "runahead"
config.test_format = lit.formats.ShTest(True)
config.suffixes = [".c", ".cc", ".f90", ".ll"]
config.test_source_root = __file__.rsplit("/", 1)[0]
config.test_exec_root = lit_config.params["scratch"]
llvm = lit_config.params["llvm"]
version = lit_config.params["version"]
plugin = lit_config.params["plugin"]
runtime = lit_config.params["runtime"]
config.available_features.add(f"llvm{version}")
if os.path.exists(f"{llvm}/bin/flang-new"):
    config.available_features.add("flang")
if " fma " in open("/proc/cpuinfo").read():
    config.available_features.add("fma")
# A user who may make namespaces, to see what a program does without /proc.
if os.system("unshare -rm mount -t tmpfs none /proc 2>/dev/null") == 0:
    config.available_features.add("namespaces")
# One library of OpenMP is for all versions.
openmp = os.path.dirname(glob.glob("/usr/lib/llvm-*/lib/libomp.so")[0])
# LLVM 14 still has typed pointers unless told otherwise.
opaque = "-opaque-pointers" if version == "14" else ""
target = "-mtriple=x86_64-unknown-linux-gnu"
config.substitutions += [
    ("%opt", f"{llvm}/bin/opt {opaque} {target} -load-pass-plugin={plugin} -passes='function(runahead,verify)' -S"),
    ("%remarks", f"{llvm}/bin/opt {opaque} {target} -load-pass-plugin={plugin} -passes='function(runahead)' -pass-remarks=runahead -pass-remarks-missed=runahead -disable-output"),
    ("%cxx", f"{llvm}/bin/clang++ -fpass-plugin={plugin}"),
    ("%clang", f"{llvm}/bin/clang -fpass-plugin={plugin}"),
    ("%plain", f"{llvm}/bin/clang"),
    ("%openmp", f"-fopenmp -L{openmp} -Wl,-rpath,{openmp}"),
    ("%runtime", f"{runtime} -pthread -lm"),
    ("%flang", f"{llvm}/bin/flang-new -fpass-plugin={plugin}"),
    ("%verify", f"{llvm}/bin/opt -passes=verify -S"),
    ("%FileCheck", f"{llvm}/bin/FileCheck"),
]
