"""Lets the CUDA build of torch run on a machine without NVIDIA's libraries.  For tests only.

usage: cuda_stand_ins.py .../site-packages/torch/lib      (needs gcc and binutils)

PyPI has no CPU build of a current torch for Linux, and the CUDA build names NVIDIA's libraries as hard
dependencies: `import torch` fails without some 4 GB of packages that a CPU job never calls.  For each library
that the loader misses this links a small one of the same name, in which every function that torch imports
returns 35, cudaErrorInsufficientDriver: torch then finds no GPU and computes on the CPU.
"""
import collections
import glob
import os
import re
import subprocess
import sys
import tempfile

INSUFFICIENT_DRIVER = 35
OF_THE_TOOLCHAIN = ("GLIBC", "GCC", "CXX", "GOMP", "OMP")  # symbol versions that are no one's to stand in for


def output(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout


def symbols(library, which):
    """Names, with their @version if any, from nm's last column."""
    return [line.split()[-2:] for line in output("nm", "-D", which, library).splitlines() if line]


def missing_libraries(libraries):
    return {line.split()[0] for f in libraries for line in output("ldd", f).splitlines() if "not found" in line}


def wanted(libraries, missing):
    """What torch imports from each missing library, as a dict of sets of (name, version), and what it imports
    without saying from where."""
    defined = {s[-1].split("@")[0] for f in libraries for s in symbols(f, "--defined-only")}
    by_library, unplaced = collections.defaultdict(set), set()
    for f in libraries:
        for kind, symbol in symbols(f, "--undefined-only"):
            name, _, version = symbol.partition("@")
            if version.startswith(OF_THE_TOOLCHAIN):
                continue
            home = version if version in missing else next(
                (m for m in sorted(missing) if version.startswith(m.split(".")[0])), None)
            if home:
                by_library[home].add((name, version))
            elif version or (kind == "U" and name not in defined and re.match(r"_*(cu|nv|nccl)", name)):
                unplaced.add(name)
    return by_library, unplaced


def source(functions):
    lines = []
    for name in sorted(functions):
        if name.endswith(("GetErrorString", "GetErrorName")):
            lines.append('const char *%s(void) { return "a stand-in: no CUDA here"; }' % name)
        else:
            lines.append("long %s(void) { return %d; }" % (name, INSUFFICIENT_DRIVER))
    return "\n".join(lines) + "\n"


def version_script(imports):
    names = collections.defaultdict(set)
    for name, version in imports:
        if version:
            names[version].add(name)
    return "".join("%s { global: %s; };\n" % (v, "; ".join(sorted(n))) for v, n in sorted(names.items()))


def link(directory, soname, imports):
    with tempfile.TemporaryDirectory() as tmp:
        c, script = os.path.join(tmp, "stand_in.c"), os.path.join(tmp, "stand_in.map")
        with open(c, "w") as f:
            f.write(source({name for name, _ in imports}))
        command = ["gcc", "-w", "-shared", "-fPIC", "-O1", "-nostdlib", "-Wl,-soname," + soname,
                   "-o", os.path.join(directory, soname), c]
        if version_script(imports):
            with open(script, "w") as f:
                f.write(version_script(imports))
            command.append("-Wl,--version-script," + script)
        subprocess.check_call(command)


def main(directory):
    libraries = glob.glob(os.path.join(directory, "*.so"))
    missing = missing_libraries(libraries)
    by_library, unplaced = wanted(libraries, missing)
    for soname in sorted(missing):
        imports = sorted(by_library[soname])
        if soname.startswith("libcudart"):
            imports += [(name, "") for name in sorted(unplaced)]
        link(directory, soname, imports)
    print("stand-ins for %d libraries" % len(missing))


main(sys.argv[1])
