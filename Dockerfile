# The image that verifies. Dockerfile.publish makes one without torch, which only publishes.
# A release names its digest: .github/workflows/release.yml.
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /opt/onnx-gate
COPY constraints.txt ./
COPY tools/image.py tools/
RUN ["python", "-I", "tools/image.py", "torch"]
# Layers of their own, as torch changes less often than what is around it.
COPY tools/locks tools/locks
# hadolint ignore=DL3059
RUN ["python", "-I", "tools/image.py", "verify"]
COPY pyproject.toml README.md LICENSE ./
COPY onnx_gate onnx_gate
COPY engines engines
RUN ["python", "-I", "tools/image.py", "gate"]
COPY entrypoint.py ./
WORKDIR /github/workspace
# No shell before Python: dash drops variables with a hyphen, such as INPUT_GITHUB-TOKEN. -I: the
# job's PYTHONPATH and the workspace add no module to the process that holds the token.
ENTRYPOINT ["python", "-I", "/opt/onnx-gate/entrypoint.py"]
