"""Checkpoints as their owners have them, read without running what they hold."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file, save_model
from torch import nn

from onnx_gate.errors import GateError
from onnx_gate.manifest import WeightsSpec
from onnx_gate.verify.blocks.stored import find_stored
from onnx_gate.verify.checkpoint import load_weights
from onnx_gate.verify.checkpoint_files import checkpoint_files


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.last = nn.Linear(4, 2)


SOURCE = Net()
STATE = {name: tensor.detach().clone() for name, tensor in SOURCE.state_dict().items()}
PREFIXED = {f"model.{name}": tensor for name, tensor in STATE.items()}


def loaded(folder: Path, file: str, key: str | None = None, strip: str | None = None) -> None:
    module = Net()
    load_weights(module, WeightsSpec(file, key, strip), folder)
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, STATE[name]), name


def refusal(folder: Path, file: str, key: str | None = None, strip: str | None = None) -> str:
    with pytest.raises(GateError) as caught:
        load_weights(Net(), WeightsSpec(file, key, strip), folder)
    assert caught.value.code == "OG205"
    return str(caught.value.message)


def sharded(
    folder: Path, name: str, write: Callable[[dict[str, torch.Tensor], Path], None]
) -> None:
    stem, _, suffix = name.rpartition(".")
    parts: dict[str, dict[str, torch.Tensor]] = {}
    for key, tensor in STATE.items():
        number = 1 if key.startswith("first") else 2
        parts.setdefault(f"{stem}-{number:05}-of-00002.{suffix}", {})[key] = tensor
    for file, tensors in parts.items():
        write(tensors, folder / file)
    index = {"weight_map": {key: file for file, part in parts.items() for key in part}}
    (folder / f"{name}.index.json").write_text(json.dumps({"metadata": {}, **index}))


@pytest.mark.parametrize("name", ["w.pt", "w.pth", "w.pth.tar", "w.bin", "w.ckpt"])
def test_every_name_that_torch_save_is_given(tmp_path: Path, name: str) -> None:
    torch.save({"epoch": 3, "state_dict": STATE, "optimizer": {"lr": 0.1}}, tmp_path / name)
    loaded(tmp_path, name)


def test_a_key_leads_to_the_weights_and_a_prefix_is_stripped(tmp_path: Path) -> None:
    torch.save(
        {"ema.model": {"shadow": {**PREFIXED, "loss.weight": torch.ones(1)}}, "model": {}},
        tmp_path / "last.ckpt",
    )
    loaded(tmp_path, "last.ckpt", "ema.model.shadow", "model.")


def test_what_would_fit_is_said_so_that_it_can_be_pasted(tmp_path: Path) -> None:
    torch.save({"state_dict": PREFIXED, "ema": STATE}, tmp_path / "a.ckpt")
    assert "write weights: {file: a.ckpt, strip: 'model.'}" in refusal(tmp_path, "a.ckpt")
    torch.save({"state_dict": {"x": torch.ones(1)}, "deep": {"ema": PREFIXED}}, tmp_path / "b.ckpt")
    message = refusal(tmp_path, "b.ckpt")
    assert "write weights: {file: b.ckpt, key: 'deep.ema', strip: 'model.'}" in message


def test_a_wrong_key_is_answered_with_those_that_there_are(tmp_path: Path) -> None:
    torch.save({"state_dict": STATE, "epoch": 3, "ema": STATE}, tmp_path / "a.ckpt")
    assert "did you mean 'state_dict'? (it has ema, epoch, state_dict)" in refusal(
        tmp_path, "a.ckpt", "state_dcit"
    )
    assert "what a.ckpt has under epoch is no state dict" in refusal(tmp_path, "a.ckpt", "epoch")
    torch.save({"one": STATE, "two": STATE}, tmp_path / "b.ckpt")
    assert "name it with key: one or key: two" in refusal(tmp_path, "b.ckpt")
    message = refusal(tmp_path, "a.ckpt", "ema", "modle.")
    assert "no key in a.ckpt begins with 'modle.'" in message
    assert "first.bias, first.weight" in message


def test_shards_of_both_kinds_by_index_and_by_folder(tmp_path: Path) -> None:
    sharded(tmp_path, "model.safetensors", lambda part, path: save_file(part, path))
    loaded(tmp_path, "model.safetensors.index.json")
    loaded(tmp_path.parent, tmp_path.name)
    other = tmp_path / "older"
    other.mkdir()
    sharded(other, "pytorch_model.bin", torch.save)
    loaded(tmp_path, "older")
    names = {file.name for file in checkpoint_files(tmp_path, tmp_path)}
    assert names == {
        "model.safetensors.index.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    }


def test_a_weight_is_read_from_the_shard_that_the_index_names(tmp_path: Path) -> None:
    sharded(tmp_path, "model.safetensors", lambda part, path: save_file(part, path))
    index = tmp_path / "model.safetensors.index.json"
    first, second = sorted(tmp_path.glob("*.safetensors"))
    content = load_file(first)
    name = min(content)
    save_file({**load_file(second), name: content[name] + 1}, second)  # left from another time
    loaded(tmp_path, index.name)
    named = json.loads(index.read_text())["weight_map"]
    save_file({key: value for key, value in content.items() if key != name}, first)
    assert f"the index has {name} in {first.name}" in refusal(tmp_path, index.name)
    index.write_text(json.dumps({"weight_map": {**named, name: second.name}}))
    with pytest.raises(AssertionError):
        loaded(tmp_path, index.name)


def test_a_shard_that_is_not_there_or_lies_elsewhere_is_refused(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    sharded(work, "model.safetensors", lambda part, path: save_file(part, path))
    (work / "model-00002-of-00002.safetensors").rename(tmp_path / "elsewhere.safetensors")
    with pytest.raises(GateError, match="which is not there: 2 shards belong to it") as caught:
        load_weights(Net(), WeightsSpec("model.safetensors.index.json"), work)
    assert "fetch all of them" in caught.value.remedy
    (work / "model-00002-of-00002.safetensors").symlink_to(tmp_path / "elsewhere.safetensors")
    assert "leads out of the manifest's folder" in refusal(work, "model.safetensors.index.json")
    (work / "bad.index.json").write_text("[]")
    assert "is not the index of a sharded checkpoint" in refusal(work, "bad.index.json")


def test_objects_are_named_and_never_unpickled(tmp_path: Path) -> None:
    hyper = argparse.Namespace(lr=0.1)
    torch.save({"state_dict": STATE, "hyper": hyper}, tmp_path / "lightning.ckpt")
    message = refusal(tmp_path, "lightning.ckpt")
    assert "it holds a argparse.Namespace, and only tensors" in message


def test_a_program_is_not_taken_for_weights(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.script(nn.Linear(2, 2)), tmp_path / "program.pt")
    assert "it is a program (torch.jit.save), not a state dict" in refusal(tmp_path, "program.pt")


def small(name: str) -> nn.Module:
    """A model of transformers' whose save_pretrained writes other names than state_dict() has."""
    transformers = pytest.importorskip("transformers", minversion="5.0")
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2}
    if name == "ViT":
        config = transformers.ViTConfig(**sizes, num_hidden_layers=2, image_size=8, patch_size=4)
        made = transformers.ViTForImageClassification(config)
    else:
        more = {"vocab_size": 19, "num_local_experts": 4, "num_key_value_heads": 2}
        config = transformers.MixtralConfig(**sizes, **more, num_hidden_layers=1)
        made = transformers.MixtralForCausalLM(config)
    module: nn.Module = made
    return module


def test_names_of_the_hub_are_those_of_the_module(tmp_path: Path) -> None:
    saved, whole = small("ViT"), small("ViT")
    saved.save_pretrained(tmp_path)  # type: ignore[operator]
    weights = WeightsSpec("model.safetensors")
    stored = find_stored(weights, tmp_path)
    assert saved.state_dict().keys() - stored.tensors.keys()
    load_weights(whole, weights, tmp_path)
    tensors = stored.of(whole).tensors
    for name, tensor in saved.state_dict().items():
        assert torch.equal(whole.state_dict()[name], tensor)
        assert torch.equal(tensors[name].load(tensor.dtype), tensor)


def test_what_transformers_merges_is_said_with_what_helps(tmp_path: Path) -> None:
    saved, other = small("Mixtral"), small("Mixtral")
    saved.save_pretrained(tmp_path)  # type: ignore[operator]
    with pytest.raises(GateError) as caught:
        load_weights(other, WeightsSpec("model.safetensors"), tmp_path)
    assert "names of the Hub, as save_pretrained of transformers writes them" in str(caught.value)
    assert "missing model.layers.0.mlp.experts.down_proj" in str(caught.value)
    assert "mlp.gate" not in str(caught.value)
    assert "safetensors.torch.save_model(" in caught.value.remedy
    loaded = type(saved).from_pretrained(tmp_path)  # type: ignore[attr-defined]
    save_model(loaded, str(tmp_path / "own.safetensors"))
    load_weights(other, WeightsSpec("own.safetensors"), tmp_path)
    for name, tensor in saved.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor)
