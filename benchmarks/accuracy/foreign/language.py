"""Text models of transformers, sentence-transformers, peft and x-transformers."""

from pathlib import Path
from tempfile import TemporaryDirectory

from torch import nn

SIZES = {
    "vocab_size": 120,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}


def bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(**SIZES)).eval()


def modernbert() -> nn.Module:
    from transformers import ModernBertConfig, ModernBertForSequenceClassification

    config = ModernBertConfig(**SIZES, pad_token_id=0, cls_token_id=1, sep_token_id=2)
    return ModernBertForSequenceClassification(config).eval()


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(vocab_size=120, n_positions=64, n_embd=32, n_layer=2, n_head=4)
    ).eval()


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2)).eval()


def gemma3() -> nn.Module:
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    config = Gemma3TextConfig(**SIZES, num_key_value_heads=2, head_dim=8, sliding_window=8)
    return Gemma3ForCausalLM(config).eval()


def mixtral(experts: str | None = None) -> nn.Module:
    from transformers import AutoModelForCausalLM, MixtralConfig

    config = MixtralConfig(**SIZES, num_key_value_heads=2, num_local_experts=4)
    return AutoModelForCausalLM.from_config(config, experts_implementation=experts).eval()


def mixtral_batched() -> nn.Module:
    return mixtral("batched_mm")


def t5() -> nn.Module:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=120, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
    return T5ForConditionalGeneration(config).eval()


def bart() -> nn.Module:
    from transformers import BartConfig, BartForConditionalGeneration

    half = {"layers": 2, "attention_heads": 4, "ffn_dim": 64}
    sides = {f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in half.items()}
    config = BartConfig(vocab_size=120, d_model=32, max_position_embeddings=64, **sides)
    return BartForConditionalGeneration(config).eval()


def lora() -> nn.Module:
    from peft import LoraConfig, get_peft_model
    from transformers import BertConfig, BertForSequenceClassification

    model = BertForSequenceClassification(BertConfig(**SIZES))
    return get_peft_model(
        model, LoraConfig(task_type="SEQ_CLS", target_modules=["query", "value"])
    ).eval()


def sentences() -> nn.Module:
    from sentence_transformers import SentenceTransformer, models
    from transformers import BertConfig, BertModel, BertTokenizer

    with TemporaryDirectory() as folder:
        BertModel(BertConfig(**SIZES)).save_pretrained(folder)
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(115))]
        vocabulary = Path(folder, "vocab.txt")
        vocabulary.write_text("\n".join(words))
        BertTokenizer(str(vocabulary)).save_pretrained(folder)
        encoder = models.Transformer(folder)
        pooling = models.Pooling(encoder.get_word_embedding_dimension())
        return SentenceTransformer(
            modules=[encoder, pooling, models.Normalize()], device="cpu"
        ).eval()


def x_decoder() -> nn.Module:
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=32, depth=2, heads=4, rotary_pos_emb=True)
    return TransformerWrapper(num_tokens=120, max_seq_len=64, attn_layers=layers).eval()


def x_encoder() -> nn.Module:
    from x_transformers import Encoder, TransformerWrapper

    layers = Encoder(dim=32, depth=2, heads=4)
    return TransformerWrapper(num_tokens=120, max_seq_len=64, attn_layers=layers).eval()
