"""Speech and time series."""

from torch import nn


def wav2vec2() -> nn.Module:
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    return Wav2Vec2ForCTC(
        Wav2Vec2Config(
            vocab_size=20,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            conv_dim=[16, 16],
            conv_stride=[5, 2],
            conv_kernel=[10, 3],
            num_conv_pos_embeddings=16,
            num_conv_pos_embedding_groups=2,
        )
    ).eval()


def whisper() -> nn.Module:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    half = {"layers": 2, "attention_heads": 4, "ffn_dim": 64}
    sides = {f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in half.items()}
    config = WhisperConfig(
        vocab_size=120,
        d_model=32,
        num_mel_bins=20,
        max_source_positions=30,
        max_target_positions=24,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        begin_suppress_tokens=None,
        suppress_tokens=None,
        **sides,
    )
    return WhisperForConditionalGeneration(config).eval()


def patchtst() -> nn.Module:
    from transformers import PatchTSTConfig, PatchTSTForPrediction

    config = PatchTSTConfig(
        num_input_channels=2,
        context_length=32,
        prediction_length=8,
        patch_length=8,
        patch_stride=8,
        d_model=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        ffn_dim=32,
    )
    return PatchTSTForPrediction(config).eval()


def ecapa() -> nn.Module:
    from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN

    return ECAPA_TDNN(
        20, lin_neurons=16, channels=[16] * 5, attention_channels=8, se_channels=8, res2net_scale=4
    ).eval()


def conformer() -> nn.Module:
    from torchaudio.models import Conformer

    return Conformer(
        input_dim=16, num_heads=4, ffn_dim=32, num_layers=2, depthwise_conv_kernel_size=7
    ).eval()
