"""Images of several sizes, as a service gets them."""

import torch
from plain import Denoiser

model = Denoiser().eval()
for height, width in ((64, 96), (32, 32), (128, 64)):
    image = torch.rand(1, 1, height, width)
    model(image)
