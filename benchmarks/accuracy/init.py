"""``onnx-gate init`` on models of many libraries: how many verify without an edit.

    python benchmarks/accuracy/init.py --output DIR [--model GLOB ...] [--save]

Thirty models by their names, forty held out, and five scripts whose calls are recorded. Each has a
folder of its own in DIR, in which the command is run as a user runs it; what it wrote stays there.
What the inputs of those held out are was written down before the command saw them: one is right
where the manifest says so, and its run is green.
"""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import os
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.support import results
from benchmarks.support.gate import read_report
from onnx_gate.manifest.load import load

HERE = Path(__file__).resolve().parent
MODELS = HERE / "init_models"
SECONDS = 900


@dataclass(frozen=True)
class Target:
    """A model to begin with, and the script that calls it."""

    name: str
    reference: str
    arguments: tuple[str, ...] = ()
    script: str | None = None
    expected: str = ""


@dataclass(frozen=True)
class Row:
    """What came of a target; ``right`` where its inputs are those ``expected``, ``*`` for any name."""

    name: str
    target: str
    verdict: str
    calls: int
    checks: int
    inputs: str
    right: bool = True


def _named(prefix: str, function: str, *names: str) -> list[Target]:
    return [
        Target(f"{prefix}-{n}", f"library.py:{function}", ("--arg", f"name={n}")) for n in names
    ]


TRANSFORMERS = (
    "BertModel",
    "RobertaForSequenceClassification",
    "AlbertModel",
    "ViTModel",
    "SwinModel",
    "CLIPModel",
    "SegformerForSemanticSegmentation",
    "Wav2Vec2Model",
    "GPT2LMHeadModel",
    "LlamaForCausalLM",
    "Qwen2ForCausalLM",
    "OPTForCausalLM",
    "T5Model",
    "BartModel",
    "WhisperModel",
)
TARGETS = [
    *(Target(f"transformers-{name}", f"transformers:{name}") for name in TRANSFORMERS),
    *_named("timm", "timm_model", "resnet18", "vit_tiny_patch16_224", "convnext_atto"),
    *_named("torchvision", "torchvision_classifier", "resnet18", "mobilenet_v3_small"),
    *_named("torchvision", "torchvision_model", "lraspp_mobilenet_v3_large"),
    Target("diffusers-unet", "library.py:unet"),
    Target("diffusers-conditional-unet", "library.py:conditional_unet"),
    Target("torchscript-scripted", "plain.py:scripted"),
    Target("torchscript-traced", "plain.py:traced"),
    *(
        Target(f"plain-{name}", f"plain.py:{name}")
        for name in ("Recommender", "Encoder", "Denoiser", "GraphLayer", "CrossAttention")
    ),
]
_IDS, _MASK, _IMAGE = (
    "input_ids=int64[*,*] 0..{}",
    "attention_mask=int64[*,*] 0..1",
    "float32[*,{}]",
)
_TEXT = f"{_IDS.format(999)}; {_MASK}"
_FIXED = f"pixel_values={_IMAGE.format('3,224,224')}"
_ANY = f"pixel_values={_IMAGE.format('3,*,*')}"
# A side that shows in no output is fixed where it was tried first.
HELD_OUT = [
    *(
        Target(f"held-{name}", f"transformers:{name}", expected=inputs)
        for name, inputs in {
            "ElectraForTokenClassification": _TEXT,
            "MPNetModel": _TEXT,
            "XLMRobertaForMaskedLM": _TEXT,
            "DebertaV2Model": _TEXT,
            "SqueezeBertModel": _TEXT,
            "ConvNextModel": _ANY,
            "ResNetForImageClassification": f"{_FIXED}|{_ANY}",
            "DeiTForImageClassification": _FIXED,
            "BeitModel": f"{_FIXED}|{_ANY}",
            "Dinov2Model": f"{_FIXED}|{_ANY}",
            "MistralForCausalLM": _TEXT,
            "GemmaForCausalLM": _TEXT,
            "PhiForCausalLM": _TEXT,
            "GPTNeoXForCausalLM": _TEXT,
            "HubertModel": "input_values=float32[*,*]",
            "PegasusModel": f"{_TEXT}; decoder_input_ids=int64[*,*] 0..999",
        }.items()
    ),
    *(
        Target(f"held-{name}", f"held_out.py:{name}", expected=inputs)
        for name, inputs in {
            "PaddedEncoder": "tokens=int64[*,*] 0..119; padding_mask=bool[*,*]",
            "StatefulLstm": "x=float32[*,*,24]; h0=float32[2,*,32]; c0=float32[2,*,32]",
            "AtariNet": "frames=uint8[*,84,84,4] 0..255",
            "TinyGpt": "idx=int64[*,*] 0..149",
            "TextRecogniser": "images=float32[*,1,32,*]",
            "MelTagger": "mel=float32[*,80,*]",
            "WaveNet": "waveform=float32[*,1,*]",
            "UNet": "x=float32[*,3,*,*]",
            "VideoClassifier": "clip=float32[*,3,*,*,*]|clip=float32[*,3,*,32,32]",
            "DigitVae": "x=float32[*,784]|x=float32[*,1,28,28]",
            "ClickModel": "dense=float32[*,13]; sparse=int64[*,4] 0..19",
            "PointNet": "points=float32[*,3,*]",
            "DenseGraph": "nodes=float32[*,*,8]; adjacency=float32[*,*,*]",
            "Siamese": "left=float32[*,3,224,224]; right=float32[*,3,224,224]",
            "DetectionHead": "images=float32[*,3,*,*]",
            "Forecaster": "history=float32[*,*,3]; covariates=float32[*,*,2]",
            "Translator": "src=int64[*,*] 0..129; tgt=int64[*,*] 0..169",
            "MeanOfWords": "text=int64[*,*] 0..139; lengths=int64[*] 1..seq",
            "NoisePredictor": "x=float32[*,1,*,*]; t=int64[*] 0..999|x=float32[*,1,*,*]; t=float32[*]",
            "Policy": "image=float32[*,3,224,224]; joints=float32[*,7]",
        }.items()
    ),
    Target("held-conformer", "library.py:conformer", expected="x=float32[*,*,32]"),
    Target("held-mixer", "library.py:mixer", expected="input=float32[*,3,32,32]"),
    Target("held-gmlp", "library.py:gmlp", expected="x=float32[*,3,32,32]"),
    Target("held-linear-attention", "library.py:linear_attention", expected="x=int64[*,64] 0..199"),
]
# By what ``forward`` takes rather than by what the model is for.
STRANGERS = [
    *(
        Target(f"stranger-{name}", f"transformers:{name}", expected=inputs)
        for name, inputs in {
            "MobileViTModel": f"{_FIXED}|{_ANY}",
            "Data2VecAudioModel": "input_values=float32[*,*]",
            "BloomForCausalLM": _TEXT,
            "SiglipModel": f"{_IDS.format(31999)}; {_FIXED}; {_MASK}",
            "MarianModel": f"{_TEXT}; decoder_input_ids=int64[*,*] 0..999",
            "PatchTSTModel": "past_values=float32[*,32,1]|past_values=float32[*,512,7]",
        }.items()
    ),
    *(
        Target(f"stranger-{name}", f"strangers.py:{name}", expected=inputs)
        for name, inputs in {
            "decoder_layer": "tgt=float32[*,*,32]; memory=float32[*,*,32]",
            "gru": "input=float32[*,*,10]",
            "attention": "query=float32[*,*,32]; key=float32[*,*,32]; value=float32[*,*,32]",
            "bilinear": "input1=float32[*,5]; input2=float32[*,7]",
            "tab_transformer": "x_cont=float32[*,4]; x_cat=int64[*,3] 0..4",
            "efficientnet": f"inputs={_IMAGE.format('3,224,224')}|inputs={_IMAGE.format('3,*,*')}",
            "temporal": "x=float32[*,6,*]",
            "linformer": "x=int64[*,*] 0..89",
            "FieldSegmenter": "rgb=uint8[*,*,*,3] 0..255; nir=uint8[*,*,*,3] 0..255",
            "ClipTagger": "clip.frames=float32[*,*,24]; clip.audio=float32[*,*,10]",
            "PriceModel": "features.district=int64[*] 0..23; features.numeric=float32[*,3]",
            "NestedState": "x=float32[*,8]; state.0.0=float32[*,12]; state.0.1=float32[*,12]; "
            "state.1=float32[*,12]",
            "MelodyDecoder": "note=int64[*,*] 0..87; "
            + "; ".join(f"caches.{i}.{j}=float32[*,4,*,8]" for i in (0, 1) for j in (0, 1)),
            "Matcher": "image=float32[*,3,*,*]; caption=int64[*,*] 0..299|"
            "image=float32[*,3,224,224]; caption=int64[*,*] 0..299",
            "SpeechCounter": "fbank=float32[*,*,40]; fbank_lengths=int64[*] 1..seq",
            "Panoptic": "pixel_values=float32[*,3,*,*]; pixel_mask=int64[*,*,*] 0..1|"
            "pixel_values=float32[*,3,*,*]; pixel_mask=bool[*,*,*]",
            "BiasedAttention": "x=float32[*,*,24]; attn_mask=float32[*,*]",
            "NeighbourCloud": "xyz=float32[*,*,3]; neighbors=int64[*,*,*] 0..points - 1",
            "DigitGenerator": "z=float32[*,20]; y=int64[*] 0..9",
            "Scan": "volume=float32[*,1,*,*,*]",
            "EegNet": "eeg=float32[*,22,128]",
            "Molecule": "z=int64[*] 0..118; edge_index=int64[2,*] 0..nodes - 1; batch=int64[*] 0..7",
            "FlowField": "frame1=float32[*,3,*,*]; frame2=float32[*,3,*,*]",
            "GoNet": "board=float32[*,17,9,9]",
        }.items()
    ),
]
RECORDED = [
    Target("record-classify", "plain.py:Mlp", script="classify.py"),
    Target("record-tag", "plain.py:Tagger", script="tag.py"),
    Target("record-embed", "transformers:DistilBertModel", script="embed.py"),
    Target("record-decode", "transformers:GPT2LMHeadModel", script="decode.py"),
    Target("record-restore", "plain.py:Denoiser", script="restore.py"),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="a folder for what is written")
    parser.add_argument("--model", action="append", default=[], help="a glob of names")
    parser.add_argument(
        "--libraries",
        type=Path,
        help="a folder with timm, torchvision and diffusers, for those alone that need them",
    )
    parser.add_argument("--read", action="store_true", help="run nothing, read what is in DIR")
    results.add_option(parser)
    options = parser.parse_args()
    globs = options.model or ["*"]
    rows = []
    for target in (*TARGETS, *HELD_OUT, *STRANGERS, *RECORDED):
        if any(fnmatch.fnmatch(target.name, glob) for glob in globs):
            folder = options.output.resolve() / target.name
            if options.read and not folder.exists():
                continue
            if not options.read:
                run(target, folder, options.libraries)
            rows.append(row(target, folder))
            wrong = "" if rows[-1].right else f"   not {target.expected}, but {rows[-1].inputs}"
            print(f"{rows[-1].verdict:9} {target.name}{wrong}", flush=True)
    for kind, chosen in (
        ("by name", TARGETS),
        ("held out", HELD_OUT),
        ("strangers", STRANGERS),
        ("recorded", RECORDED),
    ):
        names = {target.name for target in chosen}
        own = [each for each in rows if each.name in names]
        passed = sum(each.verdict == "pass" and each.right for each in own)
        print(f"{kind}: {passed} of {len(own)} verify without an edit")
        if options.save and own:
            results.save(__file__, kind, [asdict(each) for each in own])


def run(target: Target, folder: Path, libraries: Path | None) -> None:
    """Run the command in a folder made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in (*MODELS.glob("*.py"), *MODELS.glob("scripts/*.py")):
        shutil.copy(file, folder)
    shutil.copy(HERE / "correct" / "_torchvision.py", folder)
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    command = [sys.executable, "-m", "onnx_gate", "init", target.reference, *target.arguments]
    if target.script is not None:
        command += ["--record", f"{sys.executable} {target.script}"]
    environment = dict(os.environ)
    if libraries is not None and target.reference.startswith("library.py"):
        paths = [str(libraries.resolve()), *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    with (folder / "printed").open("w") as printed:
        subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdout=printed,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
        )


def row(target: Target, folder: Path) -> Row:
    """Read what a run has left in its folder."""
    path = folder / "onnx-gate-report" / "report.json"
    shown = f"{target.reference} {' '.join(target.arguments)}".strip()
    if not path.exists():
        return Row(target.name, shown, "nothing", 0, 0, "", not target.expected)
    model = read_report(path)["models"][0]
    calls = re.search(r", by (\d+) calls? of forward", (folder / "printed").read_text())
    lines = (folder / "onnx-gate.yml").read_text().partition("    inputs:\n")[2].splitlines()
    own = [line.strip() for line in itertools.takewhile(lambda e: e.startswith(" " * 6), lines)]
    return Row(
        name=target.name,
        target=shown,
        verdict=model["verdict"],
        calls=int(calls[1]) if calls else 0,
        checks=len(model["checks"]),
        inputs="; ".join(own),
        right=not target.expected or _written(folder) in target.expected.split("|"),
    )


def _written(folder: Path) -> str:
    """Return what a manifest says of its model's inputs, their own names of sizes left out."""
    shown = []
    for name, each in load(folder / "onnx-gate.yml").models[0].inputs.items():
        sizes = ",".join(str(size) if isinstance(size, int) else "*" for size in each.shape)
        default = (0, 255) if each.dtype == "uint8" else None
        bounds = None if each.dtype == "float32" else each.range or each.bounds or default
        limits = "" if bounds is None else " {}..{}".format(*bounds)
        shown.append(f"{name}={each.dtype}[{sizes}]{limits}")
    return "; ".join(shown)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
