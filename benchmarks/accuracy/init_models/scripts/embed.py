"""A model of transformers, called with a mask."""

import torch
from transformers import DistilBertConfig, DistilBertModel

config = DistilBertConfig(dim=32, hidden_dim=64, n_layers=1, n_heads=2, vocab_size=200)
model = DistilBertModel(config).eval()
with torch.inference_mode():
    for batch, length in ((1, 6), (2, 11)):
        ids = torch.randint(5, 180, (batch, length))
        mask = torch.ones_like(ids)
        mask[0, 4:] = 0
        model(ids, attention_mask=mask)
