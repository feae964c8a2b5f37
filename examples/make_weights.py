"""Make the committed files: ``python examples/make_weights.py`` (some ten seconds).

Trains the digits' classifier on rendered digits and writes ``weights/digits.safetensors``,
``artifacts/digits.onnx`` and ``data/digits.npz`` (one image of each digit, and its scores).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from models.digits import Digits
from safetensors.torch import save_file
from torch import Tensor, nn

HERE = Path(__file__).parent

# Which segments each digit lights: top, upper left, upper right, middle, lower left, lower right,
# bottom.
SEGMENTS = (
    "1110111",
    "0010010",
    "1011101",
    "1011011",
    "0111010",
    "1101011",
    "1101111",
    "1010010",
    "1111111",
    "1111011",
)
AREAS = (
    (slice(1, 2), slice(2, 6)),
    (slice(2, 5), slice(1, 2)),
    (slice(2, 5), slice(6, 7)),
    (slice(5, 6), slice(2, 6)),
    (slice(6, 9), slice(1, 2)),
    (slice(6, 9), slice(6, 7)),
    (slice(9, 10), slice(2, 6)),
)


def render(labels: Tensor, noise: float) -> Tensor:
    """Draw digits as float32[n, 1, 12, 8] in [0, 1], moved by up to one pixel, with noise."""
    glyphs = torch.zeros(10, 12, 8)
    for digit, lit in enumerate(SEGMENTS):
        for area, on in zip(AREAS, lit, strict=True):
            glyphs[(digit, *area)] = float(on)
    images = torch.stack(
        [
            glyphs[label].roll((int(dy), int(dx)), dims=(0, 1))
            for label, dy, dx in zip(
                labels,
                torch.randint(-1, 2, labels.shape),
                torch.randint(-1, 2, labels.shape),
                strict=True,
            )
        ]
    )
    images = 0.8 * images + noise * torch.randn_like(images) + 0.1
    return images.clamp(0, 1).unsqueeze(1)


def train(steps: int = 300) -> Digits:
    """Return a classifier in eval mode."""
    model = Digits()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        labels = torch.randint(10, (64,))
        loss = nn.functional.cross_entropy(model(render(labels, noise=0.2)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def main() -> None:
    """Train, and write the checkpoint, the ONNX file and the recorded inputs."""
    torch.manual_seed(0)
    model = train()
    labels = torch.arange(10)
    images = render(labels, noise=0.2)
    with torch.no_grad():
        logits = model(images)
    print(f"accuracy on ten images: {(logits.argmax(1) == labels).float().mean():.0%}")

    for folder in ("weights", "artifacts", "data"):
        (HERE / folder).mkdir(exist_ok=True)
    save_file(model.state_dict(), HERE / "weights" / "digits.safetensors")
    np.savez(HERE / "data" / "digits.npz", image=images.numpy(), output_logits=logits.numpy())
    program = torch.onnx.export(
        model,
        (images,),
        dynamo=True,
        input_names=["image"],
        output_names=["logits"],
        dynamic_shapes={"image": {0: "batch"}},
        verbose=False,
    )
    assert program is not None
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # the stack traces name folders of this machine
    program.save(HERE / "artifacts" / "digits.onnx")


if __name__ == "__main__":
    main()
