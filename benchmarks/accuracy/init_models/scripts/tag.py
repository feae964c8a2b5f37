"""Sentences of different lengths, padded to the longest of their batch."""

import torch
from plain import Settings, Tagger

model = Tagger(Settings(vocabulary=300)).eval()
for lengths in ((5, 3), (9,), (4, 7, 6)):
    model(words=torch.randint(1, 250, (len(lengths), max(lengths))))
