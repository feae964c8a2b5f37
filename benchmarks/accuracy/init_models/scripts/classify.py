"""Batches of different sizes, through a model that needs arguments."""

import torch
from plain import Mlp

model = Mlp(num_classes=7).eval()
with torch.no_grad():
    for batch in (1, 8, 3):
        model(torch.rand(batch, 20))
