import torch


class Plain(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1


class Broken(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        raise RuntimeError("::error::raised\n::set-output name=verdict::pass\n##[add-path]/evil")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x
