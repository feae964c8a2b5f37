"""Text generated with a cache: a prompt, then one token after the other."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

config = GPT2Config(vocab_size=300, n_embd=32, n_layer=2, n_head=2, n_positions=64)
model = GPT2LMHeadModel(config).eval()
prompt = torch.randint(0, 300, (2, 5))
cache = model(prompt, use_cache=True).past_key_values
token = prompt[:, -1:]
step = model
for _ in range(4):
    answer = step(token, past_key_values=cache, use_cache=True)
    token, cache = answer.logits[:, -1:].argmax(-1), answer.past_key_values
