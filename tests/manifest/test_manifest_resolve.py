"""What a manifest means once it is read."""

from __future__ import annotations

import datetime
import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from onnx_gate.manifest import (
    BUILT_IN_SUITES,
    COMMAND,
    EdgesSuite,
    ExportSpec,
    Feed,
    FilesSuite,
    GeneratorSuite,
    InputSpec,
    Manifest,
    PluginSuite,
    RandomSuite,
    RuntimeSpec,
    StepsSpec,
    Tolerance,
    TopK,
    Waiver,
    WeightsSpec,
    lookup,
    resolve,
)
from tools import manifest_page

Read = Callable[[str], Manifest]
HEAD = "version: 1\nmodels:\n  m:\n    model: a.b:c\n"


def test_the_smallest_manifest(read: Read) -> None:
    (model,) = read(manifest_page.SMALLEST).models
    assert model.name == "resnet18"
    assert model.line == 3
    assert model.inputs == {"image": InputSpec("float32", ("batch", 3, 224, 224), None)}
    assert model.dims == {"batch": (1, 2, 7)}
    assert model.named_dims == frozenset()
    assert model.suites == {}
    assert model.outputs is None
    assert model.runtimes == (RuntimeSpec("onnxruntime"),)
    assert model.tolerance == Tolerance(auto=10.0)
    assert (model.timeout, model.memory, model.seed, model.required) == (600.0, None, 0, True)
    assert model.export == ExportSpec("dynamo", None)
    assert (model.args, model.kwargs, model.waivers) == ((), {}, ())


def test_the_whole_manifest(read: Read) -> None:
    manifest = read(manifest_page.WHOLE)
    resnet, detector, tuned, released, built, smaller, decoder = manifest.models
    assert tuned.weights == WeightsSpec("runs/last.ckpt", "state_dict", "model.")
    assert tuned.export.options["custom_opsets"] == {"my.domain": 1}
    assert (released.export.exporter, released.export.file) == (COMMAND, None)
    assert built.export == ExportSpec(
        COMMAND, command="make release", file="artifacts/resnet18.onnx"
    )
    assert (smaller.model, smaller.reference) == (None, "artifacts/detector.onnx")
    assert (smaller.inputs, smaller.dims) == ({}, {"batch": (1, 2, 32), "seq": (1, 16, 128)})
    assert manifest.requirements == "requirements.txt"
    assert manifest.sha256 == hashlib.sha256(manifest_page.WHOLE.encode()).hexdigest()
    assert manifest.workspace == manifest.path.parent
    assert resnet.kwargs == {"num_classes": 10}
    assert resnet.inputs["image"].range == (0.0, 1.0)
    assert resnet.outputs == {"logits": None}
    assert resnet.export == ExportSpec(
        "dynamo", 20, {"batch": 3}, optimize=True, options={"external_data": True}
    )
    assert resnet.dims == {"batch": (1, 8, 128)}
    assert resnet.named_dims == {"batch"}
    assert resnet.suites == {
        "typical": RandomSuite("normal", 2, 0),
        "edges": EdgesSuite(("zeros", "ones", "large", "tiny"), 0),
        "real": FilesSuite(("tests/data/*.npz",)),
        "custom": GeneratorSuite("tests/inputs.py:cases", 0),
        "random": RandomSuite("uniform", 2, 0),
    }
    assert [each.label for each in resnet.runtimes] == [
        "onnxruntime",
        "onnxruntime:cuda:all[device_id=0,session.intra_op.allow_spinning=0]",
        "openvino:CPU[NUM_STREAMS=1]",
    ]
    assert [each.tolerance for each in resnet.runtimes] == [None, None, Tolerance(auto=20)]
    assert resnet.tolerance == Tolerance(atol=1e-4, rtol=1e-3, mismatch=0.001)
    assert (resnet.timeout, resnet.memory) == (600.0, 8 * 2**30)
    assert resnet.waivers == (
        Waiver("edges/large/*", datetime.date(2027, 3, 31), "fp16 overflow, tracked in #123", 0.01),
    )
    assert detector.onnx == "artifacts/detector.onnx"
    assert detector.tolerance == Tolerance(auto=10.0)
    boxes = Tolerance(metric="tests/metrics.py:missed_boxes", max=0.01)
    assert detector.outputs == {"boxes": boxes, "scores": None}
    assert decoder.steps == StepsSpec(
        16, {"past_key_values": "present"}, {"input_ids": Feed("logits", argmax=True)}
    )


def test_a_manifest_travels_between_processes(read: Read) -> None:
    manifest = read(manifest_page.WHOLE)
    assert pickle.loads(pickle.dumps(manifest)) == manifest


def test_dims_and_export_merge_by_key_and_the_rest_as_a_whole(read: Read) -> None:
    manifest = read(
        "version: 1\n"
        "dims: {batch: 3, seq: [0, 5], other: 1}\n"
        "defaults:\n"
        "  dims: {batch: 4, seq: 8}\n"
        "  export: {exporter: torchscript, opset: 17, example: {batch: 3, none: 5}}\n"
        "  kwargs: {a: 1, b: 2}\n"
        "  suites: [typical]\n"
        "  required: false\n"
        "models:\n"
        "  one:\n"
        "    model: a.b:c\n"
        '    inputs: {x: "float32[batch, seq, other, free]"}\n'
        "    dims: {seq: [9]}\n"
        "    export: {opset: 20}\n"
        "    kwargs: {c: 3}\n"
        "    suites: [edges]\n"
        "    required: true\n"
        "  two: {model: 'a.b:c', inputs: {}}\n"
    )
    one, two = manifest.models
    assert one.dims == {"batch": (4,), "seq": (9,), "other": (1,), "free": (1, 2, 7)}
    assert one.named_dims == {"batch", "seq", "other"}
    assert one.export == ExportSpec("torchscript", 20, {"batch": 3})
    assert two.export.example == {}
    assert one.kwargs == {"c": 3}
    assert one.suites == {"edges": BUILT_IN_SUITES["edges"]}
    assert one.required
    assert two.kwargs == {"a": 1, "b": 2}
    assert two.suites == {"typical": RandomSuite("normal", 3)}
    assert not two.required
    assert two.inputs == {}
    assert two.dims == {}


def test_a_committed_file_may_stand_below_a_default_export(read: Read) -> None:
    (model,) = read(
        "version: 1\ndefaults: {export: {opset: 20}}\n"
        "models: {m: {model: 'a:b', inputs: {}, onnx: artifacts/detector.onnx}}\n"
    ).models
    assert model.onnx == "artifacts/detector.onnx"


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("float32[batch, 3]", InputSpec("float32", ("batch", 3))),
        ("' float16 [ a,b ] '", InputSpec("float16", ("a", "b"))),
        ("float32[]", InputSpec("float32", ())),
        ("bool[2]", InputSpec("bool", (2,))),
        ("{dtype: float64, shape: []}", InputSpec("float64", ())),
        ("{dtype: bfloat16, shape: [n], range: [-1, 1]}", InputSpec("bfloat16", ("n",), (-1, 1))),
        (
            "{dtype: uint64, shape: [1], range: [0, 18446744073709551615]}",
            InputSpec("uint64", (1,), (0, 2**64 - 1)),
        ),
    ],
)
def test_inputs(read: Read, text: str, spec: InputSpec) -> None:
    (model,) = read(f"{HEAD}    inputs:\n      x: {text}\n").models
    assert model.inputs == {"x": spec}
    if spec.range is not None:
        kind = int if "int" in spec.dtype else float
        assert [type(each) for each in model.inputs["x"].range or ()] == [kind, kind]


@pytest.mark.parametrize(
    "suites", ["[files]", "[generator]", "[files, generator]"], ids=lambda text: text
)
def test_integers_need_no_range_where_the_user_brings_the_values(read: Read, suites: str) -> None:
    (model,) = read(
        "version: 1\n"
        "suites: {files: {files: ['a/*.npz', 'b/*.npy']}, generator: {generator: 'a.b:c'}}\n"
        f"models: {{m: {{model: 'a:b', inputs: {{x: 'int64[n]'}}, suites: {suites}}}}}\n"
    ).models
    assert model.inputs["x"].range is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("1h", 3600), ("1h30m", 5400), ("45", 45), ("0.5", 0.5)],
)
def test_durations(read: Read, text: str, seconds: float) -> None:
    (model,) = read(f"{HEAD}    inputs: {{}}\n    timeout: {text}\n").models
    assert model.timeout == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8GiB", 8 * 2**30),
        ("512MiB", 2**29),
        ("8GB", 8 * 10**9),
        ("1.5GiB", 3 * 2**29),
        ("2 TiB", 2**41),
        ("1048576", 2**20),
    ],
)
def test_memory(read: Read, text: str, size: int) -> None:
    (model,) = read(f"{HEAD}    inputs: {{}}\n    memory: {text}\n").models
    assert model.memory == size


@pytest.mark.parametrize("text", ["1e-4", "1E-4", "1.0e-4", "0.0001", ".0001", "1e-04"])
def test_numbers_in_every_notation(read: Read, text: str) -> None:
    (model,) = read(f"{HEAD}    inputs: {{}}\n    tolerance: {{atol: {text}}}\n").models
    assert model.tolerance == Tolerance(atol=1e-4)


def test_words_that_yaml_takes_for_booleans(read: Read) -> None:
    (model,) = read(
        "version: 1\n"
        "tolerances: {on: {atol: 0}}\n"
        "models:\n"
        "  no:\n"
        "    model: a.b:c\n"
        "    inputs: {}\n"
        "    tolerance: on\n"
        "    required: no\n"
        "    runtimes:\n"
        "      - {name: onnxruntime, optimization: off}\n"
        "      - {name: onnxruntime, provider: cuda, optimization: false}\n"
    ).models
    assert model.name == "no"
    assert model.tolerance == Tolerance(atol=0.0)
    assert not model.required
    assert [each.label for each in model.runtimes] == [
        "onnxruntime:cpu:off",
        "onnxruntime:cuda:off",
    ]


def test_keys_are_text(read: Read) -> None:
    manifest = read(
        "version: 1\nmodels:\n  123: &m {model: 'a:b', inputs: {}}\n  1.50: *m\n  null: *m\n"
    )
    assert [model.name for model in manifest.models] == ["123", "1.50", "null"]


def test_anchors_and_merge_keys(read: Read) -> None:
    one, two = read(
        "version: 1\n"
        "models:\n"
        "  one: &base {model: 'a:b', inputs: {}, seed: 1, required: false}\n"
        "  two: {<<: *base, seed: 2}\n"
    ).models
    assert (one.seed, two.seed) == (1, 2)
    assert (one.required, two.required) == (False, False)


def test_every_criterion(read: Read) -> None:
    (model,) = read(
        f"{HEAD}    inputs: {{}}\n"
        "    outputs:\n"
        "      a: {auto: 3, cosine: 1, snr_db: -2, top1: 1, topk: {k: 5, agreement: 0.9}}\n"
        "      b: {max_ulp: 4, metric: 'a.b:c', max: 2, indices: exact}\n"
        "      c:\n"
        "    tolerance: {rtol: 1}\n"
    ).models
    assert model.outputs == {
        "a": Tolerance(auto=3.0, cosine=1.0, snr_db=-2.0, top1=1.0, topk=TopK(5, 0.9)),
        "b": Tolerance(max_ulp=4, metric="a.b:c", max=2.0, indices="exact"),
        "c": None,
    }
    assert model.tolerance == Tolerance(rtol=1.0)


def test_suites_written_in_place_are_called_by_their_kind(read: Read) -> None:
    text = manifest_page.SMALLEST + (
        "    suites: [edges, {edges: [ones]}, {edges: [zeros], seed: 3}, {random: normal}]\n"
    )
    (model,) = read(text).models
    assert dict(model.suites) == {
        "edges": BUILT_IN_SUITES["edges"],
        "edges-2": EdgesSuite(("ones",), 0),
        "edges-3": EdgesSuite(("zeros",), 3),
        "random": RandomSuite("normal", 2, 0),
    }


def test_other_packages_bring_suites_and_runtimes(
    read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = {"onnx_gate.suites": {"fuzz"}, "onnx_gate.runtimes": {"openvino"}}
    monkeypatch.setattr(resolve, "registered", lambda group: frozenset(installed[group]))
    (model,) = read(
        "version: 1\n"
        "suites: {f: {depth: 3, fuzz: hard}}\n"
        "models:\n"
        "  m:\n"
        "    model: a.b:c\n"
        "    inputs: {}\n"
        "    suites: [f]\n"
        "    runtimes: [openvino, {name: openvino, options: {threads: 2}}]\n"
    ).models
    assert model.suites == {"f": PluginSuite("fuzz", {"depth": 3, "fuzz": "hard"})}
    assert [each.label for each in model.runtimes] == ["openvino", "openvino[threads=2]"]


def test_installed_packages_are_found_by_their_entry_points(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = workspace / "fuzzer-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: fuzzer\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[onnx_gate.suites]\nfuzz = fuzzer:Cases\n")
    monkeypatch.syspath_prepend(str(workspace))
    assert "fuzz" in lookup.registered("onnx_gate.suites")


def test_nothing_is_looked_up_for_what_is_built_in(
    read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(group: str) -> frozenset[str]:
        raise AssertionError(group)

    monkeypatch.setattr(resolve, "registered", refuse)
    assert read(manifest_page.WHOLE).models


def test_a_byte_order_mark_and_other_line_ends(read: Read) -> None:
    text = "\ufeff" + manifest_page.SMALLEST.replace("\n", "\r\n")
    assert read(text).models[0].name == "resnet18"


def test_options_of_onnxruntime_become_text(read: Read) -> None:
    (model,) = read(
        f"{HEAD}    inputs: {{}}\n"
        "    runtimes: [{name: onnxruntime, session_options: {a: 1, b: true, c: x, d: 0.5}}]\n"
    ).models
    assert model.runtimes[0].session_options == {"a": "1", "b": "1", "c": "x", "d": "0.5"}
