"""Make the committed files: ``python examples/broken/make_artifacts.py`` (some seconds).

Writes ``artifacts/stale_weights.onnx`` and a newer ``artifacts/stale_weights.safetensors``, and
``artifacts/channel_order.onnx`` beside the checkpoint of the right model.
"""

from __future__ import annotations

from pathlib import Path

import torch
from models.channel_order import DEVIATION, MEAN, Preprocessed
from models.stale_weights import Spam
from safetensors.torch import save_file
from torch import Tensor, nn

ARTIFACTS = Path(__file__).parent / "artifacts"


def export(model: nn.Module, example: dict[str, Tensor], name: str) -> None:
    """Write ``artifacts/NAME.onnx`` with a dynamic batch."""
    program = torch.onnx.export(
        model.eval(),
        (),
        kwargs=example,
        dynamo=True,
        dynamic_shapes={key: {0: "batch"} for key in example},
        verbose=False,
    )
    assert program is not None
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # the stack traces name folders of this machine
    program.save(ARTIFACTS / f"{name}.onnx")


def stale_weights() -> None:
    """Export a model, train it on for a few steps and save the weights of the later one."""
    model = Spam()
    features = torch.randn(64, 20)
    labels = (features[:, 0] > features[:, 1]).long()
    export(model, {"features": features}, "stale_weights")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(features), labels).backward()
        optimizer.step()
    save_file(model.state_dict(), ARTIFACTS / "stale_weights.safetensors")


def channel_order() -> None:
    """Save the weights of the right model and export it with its preprocessing reversed."""
    right = Preprocessed()
    wrong = Preprocessed(MEAN[::-1], DEVIATION[::-1])
    wrong.load_state_dict(right.state_dict())
    save_file(right.state_dict(), ARTIFACTS / "channel_order.safetensors")
    export(wrong, {"image": torch.rand(5, 3, 16, 16)}, "channel_order")


def main() -> None:
    """Write all files."""
    torch.manual_seed(0)
    ARTIFACTS.mkdir(exist_ok=True)
    stale_weights()
    channel_order()


if __name__ == "__main__":
    main()
