"""The folder for the report: made, kept from what a pull request put there, handed over."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from onnx_gate.action.action_inputs import Inputs
from onnx_gate.cache.git_index import tracked
from onnx_gate.errors import UserError
from onnx_gate.files import plain_files_only, remove_tree, walk
from onnx_gate.report.layout import LOGS, MODELS, REPORT, REPRO, STATEMENTS, SUMMARY

_FOLDERS, _FILES = (LOGS, MODELS, REPRO, STATEMENTS), (REPORT, SUMMARY)


def make_output(inputs: Inputs) -> Path:
    """Return the folder for the report, in which no link of the repository's leads elsewhere.

    Raises ``UserError`` where it cannot be used.
    """
    output = inputs.output_path
    refuse_tracked(inputs)
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name in (*_FOLDERS, *_FILES):
            path = output / name
            if path.is_symlink() or (path.is_dir() and name in _FILES):
                raise UserError(
                    f"input 'output': {inputs.output}/{name} is in the way; remove it from the "
                    "repository, or name another folder"
                )
        for name in _FOLDERS:
            remove_tree(output / name)
        # An upload of the folder would follow a link that the repository has in it.
        plain_files_only(output)
        # What this run has not written must not be taken for its report.
        for name in _FILES:
            (output / name).unlink(missing_ok=True)
    except OSError as error:
        remedy = ""
        if isinstance(error, PermissionError) and os.geteuid():
            remedy = (
                f"; the gate runs as user {os.geteuid()}, who cannot write there: run the image as root, "
                "or as the workspace's owner"
            )
        message = f"input 'output': {inputs.output}: {error.strerror or error}{remedy}"
        raise UserError(message) from error
    return output.resolve()


def tidy_output(output: Path, *, keep_models: bool) -> None:
    """Leave nothing of the models' in the folder that an upload would follow, or that nobody asked for."""
    if not keep_models:
        remove_tree(output / MODELS)
    plain_files_only(output)


def refuse_tracked(inputs: Inputs) -> None:
    """Raise ``UserError`` where git tracks something in the output folder.

    Such a file is the pull request's own, and could stand in for the report of a job that was lost.
    """
    if tracked(inputs.output_path):
        raise UserError(
            f"input 'output': git tracks files in {inputs.output}, where only this run's reports "
            "may lie; remove them from the repository (git rm -r --cached), or name another folder"
        )


def hand_over(inputs: Inputs, workspace: Path) -> None:
    """Give what this run has written, as root, to the workspace's owner, who has to delete it."""
    owner = os.stat(workspace)
    if os.getuid() != 0 or owner.st_uid == 0:
        return
    for top in (inputs.output_path, inputs.cache_path):
        if top is None:
            continue
        with suppress(OSError):
            os.chown(top, owner.st_uid, owner.st_gid, follow_symlinks=False)
        for entry in walk(top):
            with suppress(OSError):
                os.chown(
                    entry.name,
                    owner.st_uid,
                    owner.st_gid,
                    dir_fd=entry.parent,
                    follow_symlinks=False,
                )
