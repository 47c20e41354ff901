"""Container images, made locally as OCI layout tarballs: no registry, no Docker, no network.

The workload image holds the Python interpreter that runs this module, its standard library, a few
of the machine's shell tools, the client library, and the agent. The programs of workloads come from
ConfigMaps, so this one image serves all. Its tag is `localhost/…:1`, because the kubelet would try
to pull a tag named `latest`. It also has the name of the public image of Python that the examples
run in, so that they run here as they are.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from realcluster import paths
from realcluster.errors import ClusterError
from realcluster.progress import Progress

from .config import PAUSE_IMAGE

_ROOT = Path(__file__).resolve().parents[3]
PACKAGES = (_ROOT / "agent" / "reprieve_agent", _ROOT / "client" / "reprieve_client")
AGENT_PROGRAM = (
    "#!/usr/bin/python3 -I\nimport sys\nfrom reprieve_agent.main import main\nsys.exit(main())\n"
)
PYTHON_IMAGE = "localhost/reprieve/python:1"
PUBLIC_PYTHON_IMAGE = "docker.io/library/python:3-slim"  # `python:3-slim`, as a node writes it
# All shared libraries go into one folder, because their folders differ between distributions.
LIBRARIES = "/usr/lib/image"
ENVIRONMENT = [
    f"LD_LIBRARY_PATH={LIBRARIES}",
    "PATH=/usr/bin",
    "PYTHONDONTWRITEBYTECODE=1",
    "PYTHONUNBUFFERED=1",
]
LOADED_LATE = "libgcc_s.so.1"
TOOLS = ("sh", "cat", "date", "env", "kill", "ls", "mkdir", "mv", "sleep", "true")
NOT_WANTED = re.compile(
    r"(idle_)?tests?|idlelib|tkinter|turtledemo|ensurepip|lib2to3|distutils|pydoc_data"
    r"|(site|dist)-packages|config-.*"
)
NOT_WANTED_FILES = re.compile(
    r".*\.opt-[12]\.pyc|.*\.(a|o|exe)"
    r"|(_tkinter|_?xx|_.*test|_codecs_|nis|ossaudiodev|_gdbm|_dbm).*\.so"
)
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
USER = "65532"  # a number, so that runAsNonRoot holds without a look into /etc/passwd

Layer = Callable[[tarfile.TarFile], None]


def python_image(progress: Progress) -> Path:
    """Return the tarball of the workload image; make it unless this interpreter's is cached."""
    target = _cached(
        "python",
        sys.version,
        sys.base_prefix,
        *map(str, map(shutil.which, TOOLS)),
        *(file.read_text() for package in PACKAGES for file in _files_of(package)),
    )
    if not target.exists():
        with progress.task(f"making an image of Python {platform.python_version()}"):
            config: dict[str, object] = {
                "Cmd": ["/usr/bin/python3"],
                "Env": ENVIRONMENT,
                "User": USER,
            }
            _write_image(target, (PYTHON_IMAGE, PUBLIC_PYTHON_IMAGE), _add_python, config)
    return target


def pause_image(pause: Path) -> Path:
    """Return the tarball of the sandbox image, which holds only the static program `pause`."""
    target = _cached("pause", str(pause))
    if not target.exists():
        _write_image(
            target,
            (PAUSE_IMAGE,),
            lambda layer: layer.add(pause, "pause", filter=_plain),
            {"Entrypoint": ["/pause"]},
        )
    return target


def _cached(name: str, *facts: str) -> Path:
    """Return the path of an image whose content depends on `facts` and on this module only."""
    digest = hashlib.sha256("\0".join([*facts, Path(__file__).read_text()]).encode()).hexdigest()
    return paths.cache_home() / "images" / f"{name}-{digest[:12]}.tar"


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Make root the owner of a file and let every user read it.

    Times stay: compiled modules are valid only with the times of their sources.
    """
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = int(member.mtime)
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member


def _add_python(layer: tarfile.TarFile) -> None:
    """Add the interpreter, its standard library, the tools and their libraries to `layer`."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    interpreter, library = Path(sys.base_prefix, "bin", version), Path(os.__file__).parent
    if not interpreter.exists():
        raise ClusterError(f"cannot make an image of this Python: there is no {interpreter}")
    programs = {f"usr/bin/{version}": interpreter}
    programs |= {f"usr/bin/{tool}": Path(place) for tool in TOOLS if (place := shutil.which(tool))}
    modules = {
        f"usr/{sys.platlibdir}/{version}/{file.relative_to(library)}": file
        for file in _standard_library(library)
    }
    modules |= {
        f"usr/{sys.platlibdir}/{version}/{file.relative_to(package.parent)}": file
        for package in PACKAGES
        for file in _files_of(package)
    }
    extensions = [file for file in modules.values() if file.suffix == ".so"]
    libraries = [*_shared_libraries([*programs.values(), *extensions]), *_loaded_late()]
    linked = {_place(file): file for file in libraries}
    with tempfile.TemporaryDirectory() as scratch:
        for place, file in sorted({**programs, **modules, **linked}.items()):
            layer.add(_without_symbols(file.resolve(), Path(scratch)), place, filter=_plain)
    for link, target in {
        "usr/bin/python3": version,
        "usr/bin/python": version,
        "bin": "usr/bin",
    }.items():
        _add_special(layer, link, tarfile.SYMTYPE, 0o777, target)
    _add_text(layer, "usr/bin/reprieve-agent", AGENT_PROGRAM, mode=0o755)
    _add_special(layer, "tmp", tarfile.DIRTYPE, 0o1777)
    _add_text(
        layer, "etc/passwd", f"root:x:0:0::/:/bin/sh\nnonroot:x:{USER}:{USER}::/tmp:/bin/sh\n"
    )
    _add_text(layer, "etc/group", f"root:x:0:\nnonroot:x:{USER}:\n")


def _without_symbols(file: Path, scratch: Path) -> Path:
    """Return a copy of a shared library without debug symbols, if the machine has `strip`.

    This halves the image.
    """
    slim = scratch / file.name
    if ".so" not in file.name or not shutil.which("strip"):
        return file
    done = subprocess.run(
        ["strip", "--strip-unneeded", "-o", slim, file], capture_output=True, check=False
    )
    return file if done.returncode else slim


def _standard_library(library: Path) -> Iterator[Path]:
    """Yield the standard library's files that a program may need.

    Compiled modules are included: without them, Python starts slowly.
    """
    for folder, subfolders, files in os.walk(library):
        subfolders[:] = sorted(name for name in subfolders if not NOT_WANTED.fullmatch(name))
        yield from (
            Path(folder, name) for name in sorted(files) if not NOT_WANTED_FILES.fullmatch(name)
        )


def _shared_libraries(files: Iterable[Path]) -> list[Path]:
    """Return the loader and all libraries that `files` need, as the loader finds them."""
    done = subprocess.run(["ldd", *files], capture_output=True, text=True, check=False)
    return [Path(name) for name in parse_ldd(done.stdout)]


def _loaded_late() -> list[Path]:
    """Return the library that glibc loads when a thread ends.

    Without it, Python aborts when it exits while another thread runs.
    """
    try:
        ctypes.CDLL(LOADED_LATE)
    except OSError:
        return []  # another libc needs none
    mapped = re.search(
        rf"^.* (/\S*/{re.escape(LOADED_LATE)})$", Path("/proc/self/maps").read_text(), re.MULTILINE
    )
    return [Path(mapped[1])] if mapped else []


def parse_ldd(text: str) -> list[str]:
    """Return the paths that `ldd` names, each once.

    Its lines are `libm.so.6 => /lib/libm.so.6 (0x…)` and, for the loader,
    `/lib64/ld-linux-x86-64.so.2 (0x…)`.
    """
    found = re.findall(r"^\s+(?:\S+ => )?(/\S+) \(0x", text, re.MULTILINE)
    return list(dict.fromkeys(found))


def _place(library: Path) -> str:
    """Return the place of a shared library.

    The loader's absolute path is written into every program.
    """
    return (
        str(library) if library.name.startswith("ld-") else f"{LIBRARIES}/{library.name}"
    ).lstrip("/")


def _add_special(
    layer: tarfile.TarFile, name: str, kind: bytes, mode: int, target: str = ""
) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.mode, member.linkname = kind, mode, target
    layer.addfile(member)


def _files_of(package: Path) -> list[Path]:
    return sorted(package.rglob("*.py"))


def _add_text(layer: tarfile.TarFile, name: str, text: str | bytes, mode: int = 0o644) -> None:
    data = text if isinstance(text, bytes) else text.encode()
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), mode
    layer.addfile(member, io.BytesIO(data))


def _write_image(
    target: Path, names: tuple[str, ...], add_files: Layer, config: dict[str, object]
) -> None:
    """Write an OCI layout with one uncompressed layer: it is read from this disk, once."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        layer, whole = Path(scratch, "layer.tar"), Path(scratch, "image.tar")
        with tarfile.open(layer, "w", format=tarfile.GNU_FORMAT) as tar:
            add_files(tar)
        with layer.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        with tarfile.open(whole, "w", format=tarfile.GNU_FORMAT) as tar:
            tar.add(layer, f"blobs/sha256/{digest}", filter=_plain)
            for place, data in _metadata(names, digest, layer.stat().st_size, config).items():
                _add_text(tar, place, data)
        whole.replace(target)


def _metadata(
    names: tuple[str, ...], layer: str, size: int, config: dict[str, object]
) -> dict[str, bytes]:
    """Return the JSON documents of an image with one layer, by their paths in the layout."""
    documents: dict[str, bytes] = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}'}

    def store(media: str, content: dict[str, object], **more: object) -> dict[str, object]:
        data = json.dumps(content).encode()
        digest = hashlib.sha256(data).hexdigest()
        documents[f"blobs/sha256/{digest}"] = data
        return {
            "mediaType": f"application/vnd.oci.image.{media}",
            "digest": f"sha256:{digest}",
            "size": len(data),
            **more,
        }

    platform_of = {
        "os": "linux",
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
    }
    rootfs = {"type": "layers", "diff_ids": [f"sha256:{layer}"]}
    image = store("config.v1+json", {**platform_of, "config": config, "rootfs": rootfs})
    layers = [
        {
            "mediaType": "application/vnd.oci.image.layer.v1.tar",
            "digest": f"sha256:{layer}",
            "size": size,
        }
    ]
    manifest = store(
        "manifest.v1+json",
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": image,
            "layers": layers,
        },
        platform=platform_of,
    )
    named = [{**manifest, "annotations": {"io.containerd.image.name": name}} for name in names]
    documents["index.json"] = json.dumps({"schemaVersion": 2, "manifests": named}).encode()
    return documents
