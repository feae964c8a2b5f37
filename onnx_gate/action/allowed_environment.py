"""What of the job's environment a model may see: names on a list, and never a secret.

Deleting a variable from ``os.environ`` hides nothing, so this is not about deleting: processes
that run the models' code are started with this environment and no other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

PASS = "ONNX_GATE_PASS"
"""A variable of the workflow that names further variables to pass on, separated by blanks."""

_NAMES = frozenset(
    {
        *("CI", "TZ", "LANG", "LANGUAGE", "PYTHONPATH", "PYTHONHASHSEED", "CUDA_VISIBLE_DEVICES"),
        *("GITHUB_ACTIONS", "GITHUB_SHA", "GITHUB_REF", "GITHUB_REF_NAME", "GITHUB_REF_TYPE"),
        *("GITHUB_BASE_REF", "GITHUB_HEAD_REF", "GITHUB_EVENT_NAME", "GITHUB_REPOSITORY"),
        *("GITHUB_RUN_ID", "GITHUB_RUN_NUMBER", "GITHUB_RUN_ATTEMPT", "GITHUB_WORKSPACE"),
        *("GITHUB_JOB", "RUNNER_OS", "RUNNER_ARCH", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE"),
        *("HF_DATASETS_OFFLINE", "TRANSFORMERS_CACHE", "TRANSFORMERS_OFFLINE", "TORCH_HOME"),
        "XDG_CACHE_HOME",
    }
)
_PREFIXES = ("LC_", "OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "NUMEXPR_", "TORCH_", "ORT_")
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTH|KEY|COOKIE", re.I)
_NEVER = re.compile(r"INPUT_|ACTIONS_|GITHUB_TOKEN|GITHUB-TOKEN|LD_", re.I)

_NETWORK = frozenset(
    name
    for base in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
    for name in (base, base.lower())
) | {"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE"}


def for_models(
    environ: Mapping[str, str], home: Path, temporary: Path, *, network: bool = False
) -> dict[str, str]:
    """Return the environment of processes that run the models' code.

    ``home`` and ``temporary`` are folders that they may write to. With ``network`` (installing
    requirements) the proxies and certificate authorities are among it.
    """
    named = set(re.split(r"[,\s]+", environ.get(PASS, ""))) - {""}
    passed = {
        name: value
        for name, value in environ.items()
        if not _NEVER.match(name)
        and (
            name in named
            or (network and name in _NETWORK)
            or ((name in _NAMES or name.startswith(_PREFIXES)) and not _SECRET.search(name))
        )
    }
    return passed | {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "USER": "nobody",
        "LOGNAME": "nobody",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "PYTHONUNBUFFERED": "1",
    }


def for_the_gate(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the process that verifies: nothing of it is secret."""
    kept = (
        *("CI", "GITHUB_ACTIONS", "GITHUB_WORKSPACE"),
        *("LANG", "LC_ALL", "TZ", "COLUMNS", "NO_COLOR", "FORCE_COLOR"),
    )
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/nonexistent",
        "PYTHONDONTWRITEBYTECODE": "1",
        **{name: environ[name] for name in kept if name in environ},
    }
