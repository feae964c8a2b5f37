"""Whether the files that a manifest names are there, and inside the workspace."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from onnx_gate.text import did_you_mean, quote


def is_inside(workspace: Path, path: Path) -> bool:
    """Whether a path, its symbolic links followed, lies below the workspace."""
    try:
        return path.resolve().is_relative_to(workspace.resolve())
    except (OSError, ValueError, RuntimeError):  # too long, a null byte, a loop of links
        return False


def complaint(workspace: Path, relative: str) -> str | None:
    """What is wrong with a path that should be a file in the workspace; ``None`` if nothing is."""
    path = workspace / relative
    if not is_inside(workspace, path):
        return f"{quote(relative)} leads out of the manifest's folder; keep the file inside it"
    try:
        if path.is_file():
            return None
        if path.is_dir():
            return f"{quote(relative)} is a folder; name a file"
        siblings = [each.name for each in islice(path.parent.iterdir(), 200)]
    except OSError:
        siblings = []
    hint = did_you_mean(path.name, siblings)
    if not hint.startswith("; did you mean"):
        hint = "; paths are relative to the manifest's folder"
    return f"no such file: {quote(relative)}{hint}"


CHECKPOINTS = (".safetensors", ".pt", ".pth", ".pth.tar", ".bin", ".ckpt")
INDEX = ".index.json"
PRETRAINED = (
    "model.safetensors",
    f"model.safetensors{INDEX}",
    "diffusion_pytorch_model.safetensors",
    f"diffusion_pytorch_model.safetensors{INDEX}",
    "pytorch_model.bin",
    f"pytorch_model.bin{INDEX}",
)
"""What ``save_pretrained`` calls the weights in its folder; the first that is there is read."""


PROGRAMS = (".pt", ".pth", ".ts", ".jit", ".torchscript")


def is_program(model: object) -> bool:
    """Whether what a manifest names as a model is a TorchScript file, of ``torch.jit.save``."""
    return isinstance(model, str) and ":" not in model and model.endswith(PROGRAMS)


def weights_complaint(workspace: Path, relative: str) -> str | None:
    """What is wrong with a path that should be a checkpoint: a file, or a folder with one."""
    path = workspace / relative
    if is_inside(workspace, path) and path.is_dir():
        if any((path / name).is_file() for name in PRETRAINED):
            return None
        names = sorted(each.name for each in path.iterdir() if each.is_file())
        has = f"it has {', '.join(names[:6])}" if names else "it has no files"
        return (
            f"the folder {quote(relative)} holds no weights of save_pretrained ({PRETRAINED[0]} or "
            f"{PRETRAINED[4]}); {has}; name the file"
        )
    wrong = complaint(workspace, relative)
    if wrong is None and not relative.endswith((*CHECKPOINTS, INDEX)):
        return (
            f"{quote(relative)} cannot be read; the file must end in {', '.join(CHECKPOINTS)} or "
            f"{INDEX}"
        )
    return wrong


def files_complaint(workspace: Path, pattern: str) -> str | None:
    """What is wrong with a glob that should match files of a suite; ``None`` if nothing is."""
    try:
        if next(workspace.glob(pattern), None) is not None:
            return None
    except OSError as error:
        return f"{quote(pattern)} cannot be looked for: {error.strerror}"
    return f"no file matches {quote(pattern)}; paths are relative to the manifest's folder"


def reference_complaint(workspace: Path, reference: str) -> str | None:
    """The same for ``file.py:attribute``; a dotted module is found only when it is imported."""
    if is_program(reference):
        return complaint(workspace, reference)
    where = reference.rpartition(":")[0]
    return complaint(workspace, where) if where.endswith(".py") else None
