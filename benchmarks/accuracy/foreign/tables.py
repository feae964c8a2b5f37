"""Tables and graphs."""

import torch
from torch import nn


def tabnet() -> nn.Module:
    from pytorch_tabnet.tab_network import TabNet

    return TabNet(
        input_dim=10, output_dim=3, n_d=8, n_a=8, n_steps=3, group_attention_matrix=torch.eye(10)
    ).eval()


def ft_transformer() -> nn.Module:
    from rtdl_revisiting_models import FTTransformer

    options = FTTransformer.get_default_kwargs(1)
    return FTTransformer(n_cont_features=6, cat_cardinalities=[4, 7], d_out=2, **options).eval()
