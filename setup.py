"""Build fastexport._core: all of csrc/core, csrc/pt2 and csrc/py as one extension module.

A C file is compiled again only when its text, a header or a flag changed, on all cores. The
objects stay under build/, so that pip and `setup.py build_ext --inplace` share them.

FASTEXPORT_DEV=1          our warnings, as errors
FASTEXPORT_SANITIZE=a,b   -fsanitize=a,b, with the asserts on
"""

import hashlib
import importlib.util
import os
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

DEV = os.environ.get("FASTEXPORT_DEV") == "1"
SANITIZE = os.environ.get("FASTEXPORT_SANITIZE", "")

CORE, FILES, BINDING = "csrc/core", "csrc/pt2", "csrc/py"
SOURCES = sorted(glob(f"{CORE}/*.c") + glob(f"{FILES}/*.c") + glob(f"{BINDING}/*.c"))
HEADERS = sorted(glob("csrc/*/*.h") + glob("csrc/*/*.inc"))


def sources_hash():
    """What tells these C sources from others; the package compares it with those beside it when it is imported."""
    spec = importlib.util.spec_from_file_location("_build", "python/fastexport/_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.sources_hash(".")


def yyjson_folder():
    """Where the Python package yyjson has yyjson.c and yyjson.h; csrc/pt2/json.c compiles them in."""
    spec = importlib.util.find_spec("yyjson")
    if spec is None:
        sys.exit("setup.py: install the build requirement yyjson==4.0.6 first (pyproject.toml)")
    return str(Path(spec.origin).parent)


CFLAGS = ["-std=c11", "-fvisibility=hidden", "-O3", "-D_GNU_SOURCE", "-Dyyjson_api="]
LDFLAGS = []
if DEV:
    CFLAGS += "-Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wvla -Werror".split()
if SANITIZE:
    CFLAGS += [f"-fsanitize={SANITIZE}", "-fno-sanitize-recover=undefined"]
    CFLAGS += ["-fno-omit-frame-pointer", "-O1", "-g"]
    CFLAGS += ["-UNDEBUG", "-U_FORTIFY_SOURCE", "-fno-wrapv"]  # Python's flags hide faults
    LDFLAGS += [f"-fsanitize={SANITIZE}"]

PYTHON_INCLUDES = {sysconfig.get_path("include"), sysconfig.get_path("platinclude")}


def flags_for(source, cc_args):
    """Keep Python's headers from the core; elsewhere, no warnings from headers not ours."""
    core = source.startswith((CORE, FILES))
    flags = ["-pedantic"] if core and DEV else []
    if source == f"{BINDING}/module.c":
        flags.append(f'-DFE_BUILD="{sources_hash()}"')
    for arg in cc_args:
        if not arg.startswith("-I/"):
            flags.append(arg)
        elif not (core and arg[2:] in PYTHON_INCLUDES):
            flags.append("-isystem" + arg[2:])
    return flags


class BuildExt(build_ext):
    def finalize_options(self):
        super().finalize_options()
        kind = ["obj", sys.implementation.cache_tag, *["dev"] * DEV, *["sanitize"] * bool(SANITIZE)]
        self.build_temp = os.path.join("build", "-".join(kind))
        self.force = True  # whether to compile is decided for each file, below

    def build_extensions(self):
        cc = self.compiler
        compile_one, link = cc._compile, cc.link_shared_object
        headers = b"".join(Path(h).read_bytes() for h in HEADERS)
        jobs = []

        def compile_changed(obj, source, ext, cc_args, postargs, pp_opts):
            cc_args = flags_for(source, cc_args)
            command = repr([cc.compiler_so, cc_args, postargs]).encode()
            key = hashlib.sha256(command + headers + Path(source).read_bytes()).hexdigest()
            stamp = Path(obj + ".key")
            if not (Path(obj).exists() and stamp.exists() and stamp.read_text() == key):
                stamp.unlink(missing_ok=True)
                compile_one(obj, source, ext, cc_args, postargs, pp_opts)
                stamp.write_text(key)

        def link_when_compiled(*args, **kwargs):
            for job in jobs:
                job.result()
            link(*args, **kwargs)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            cc._compile = lambda *args: jobs.append(pool.submit(compile_changed, *args))
            cc.link_shared_object = link_when_compiled
            super().build_extensions()


setup(
    cmdclass={"build_ext": BuildExt},
    ext_modules=[
        Extension(
            "fastexport._core",
            SOURCES,
            include_dirs=[CORE, FILES, BINDING, yyjson_folder()],
            libraries=["zip", "z", "m"],
            depends=HEADERS,
            extra_compile_args=CFLAGS,
            extra_link_args=LDFLAGS,
        )
    ],
)
