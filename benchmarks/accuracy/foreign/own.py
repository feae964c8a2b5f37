"""What somebody writes with a package, and files that somebody has."""

from pathlib import Path

import torch
from torch import Tensor, nn

FILES = Path(__file__).parent / "files"


def lightning() -> nn.Module:
    import lightning

    class Classifier(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)

        def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
            x, y = batch
            loss = nn.functional.cross_entropy(self(x), y)
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters())

    return Classifier().eval()


def mixer() -> nn.Module:
    from einops import rearrange, repeat
    from einops.layers.torch import Rearrange, Reduce

    class Attend(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Parameter(torch.randn(1, 1, 32))
            self.qkv = nn.Linear(32, 96)

        def forward(self, x: Tensor) -> Tensor:
            x = torch.cat([repeat(self.token, "1 1 d -> b 1 d", b=x.shape[0]), x], dim=1)
            q, k, v = rearrange(self.qkv(x), "b n (three h d) -> three b h n d", three=3, h=4)
            y = torch.einsum("bhij,bhjd->bhid", (q @ k.mT / 8**0.5).softmax(-1), v)
            return rearrange(y, "b h n d -> b n (h d)")

    patches = Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4)
    head = Reduce("b n d -> b d", "mean")
    return nn.Sequential(patches, nn.Linear(48, 32), Attend(), head, nn.Linear(32, 5)).eval()


class Convolutions(nn.Module):
    """What the files were made of."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, 2)
        )
        self.head = nn.Linear(16, 4)

    def forward(self, image: Tensor) -> Tensor:
        x = self.body(image)
        return self.head(x.mean((2, 3)))


def scripted() -> nn.Module:
    return torch.jit.load(FILES / "scripted.pt")


def traced() -> nn.Module:
    return torch.jit.load(FILES / "traced.pt")


def trained() -> nn.Module:
    model = Convolutions()
    model.load_state_dict(torch.load(FILES / "trained.pt", weights_only=True))
    return model.eval()
