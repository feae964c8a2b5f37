"""What a user reads for each mistake: where, what, and what to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onnx_gate.pages import page

Complaints = Callable[[str | bytes], list[str]]

TOP = "version: 1\nmodels:\n  m: {model: 'a:b', inputs: {}}\n"
ENTRY = "version: 1\nmodels:\n  m:\n    model: a.b:c\n"
MODEL = ENTRY + "    inputs: {}\n"
INPUTS = ENTRY + "    inputs:\n      x: "
CRITERIA = "auto, atol, rtol, cosine, snr_db, top1, topk, max_ulp, metric"

GOLDEN: dict[str, tuple[str, list[str]]] = {
    "unknown key": (
        MODEL + "    tolerance: {atoll: 1e-4, rtol: 1e-3}\n",
        ["6:17: models.m.tolerance: unknown key 'atoll'; did you mean 'atol'?"],
    ),
    "unknown key, nothing like it": (
        MODEL + "    export: {xyz: 1}\n",
        [
            "6:14: models.m.export: unknown key 'xyz'; known: 'command', 'example', "
            "'exporter', 'file', 'opset', 'optimize', 'options'"
        ],
    ),
    "a key that has to be there, mistyped": (
        "version: 1\nmodels:\n  m:\n    modle: a.b:c\n    input: {}\n",
        [
            "4:5: models.m: unknown key 'modle'; did you mean 'model'?",
            "5:5: models.m: unknown key 'input'; did you mean 'inputs'?",
        ],
    ),
    "wrong version": (
        TOP.replace("1", "2", 1),
        ["1:10: version: must be 1, found 2; this onnx-gate reads version 1"],
    ),
    "no version": (
        TOP.partition("\n")[2],
        ["1:1: the key 'version' is missing; add 'version: 1'"],
    ),
    "no models": (
        "version: 1\n",
        ["1:1: the key 'models' is missing; add 'models:' and below it each model by its name"],
    ),
    "empty models": (
        "version: 1\nmodels: {}\n",
        ["2:9: models: at least one entry needed, found 0; add what is missing"],
    ),
    "models as a list": (
        "version: 1\nmodels: [resnet]\n",
        ["2:9: models: expected a mapping, found a list"],
    ),
    "models not written": (
        "version: 1\nmodels:\n",
        ["2:1: models: expected a mapping, found nothing"],
    ),
    "a list at the top": (
        "- version: 1\n",
        [
            f"1:1: expected a mapping with 'version' and 'models', found a list; see {page('manifest.md')}"
        ],
    ),
    "no model": (
        "version: 1\nmodels:\n  resnet18:\n    inputs: {}\n",
        ["3:3: models.resnet18: the key 'model' is missing; add 'model: models/resnet.py:build'"],
    ),
    "a name with a slash": (
        "version: 1\nmodels:\n  a/b: {model: 'a:b', inputs: {}}\n",
        ["3:3: models: 'a/b' cannot be a name; leave out '/', as files are named by it"],
    ),
    "a key without a value": (
        MODEL + "    weights:\n",
        ["6:5: models.m.weights: nothing is written here; write a value or remove the key"],
    ),
    "a reference without an attribute": (
        TOP.replace("a:b", "models/resnet.py"),
        [
            "3:14: models.m.model: 'models/resnet.py' names no attribute; "
            "write it after a colon, as in models/resnet.py:build"
        ],
    ),
    "a reference to no file": (
        TOP.replace("a:b", "models/resent.py:build"),
        ["3:14: models.m.model: no such file: 'models/resent.py'; did you mean 'resnet.py'?"],
    ),
    "a reference without .py": (
        TOP.replace("a:b", "models/resnet:build"),
        [
            "3:14: models.m.model: 'models/resnet' is neither a .py file nor a dotted module; "
            "write models/resnet.py:build or models.resnet:build"
        ],
    ),
    "a path out of the workspace": (
        TOP.replace("a:b", "../x.py:build"),
        ["3:14: models.m.model: '../x.py' leaves the manifest's folder; keep the file inside it"],
    ),
    "an absolute path": (
        MODEL + "    weights: /tmp/x.pt\n",
        [
            "6:14: models.m.weights: '/tmp/x.pt' is absolute; "
            "write it relative to the manifest's folder"
        ],
    ),
    "weights of another kind": (
        MODEL + "    weights: [x.pt]\n",
        ["6:14: models.m.weights: expected the path of a checkpoint or a mapping, found a list"],
    ),
    "a folder": (
        MODEL.replace("a.b:c", "models:c") + "    onnx: models/x.onnx\n",
        [
            "6:11: models.m.onnx: no such file: 'models/x.onnx'; "
            "paths are relative to the manifest's folder"
        ],
    ),
    "onnx and export": (
        MODEL + "    onnx: artifacts/detector.onnx\n    export: {opset: 20}\n",
        ["3:3: models.m: 'onnx' and 'export' exclude each other; a committed file is not exported"],
    ),
    "a reference alone": (
        "version: 1\nmodels:\n  m:\n    reference: artifacts/detector.onnx\n",
        ["3:3: models.m: 'reference' is held against another file; name that one with 'onnx'"],
    ),
    "a reference and a model": (
        MODEL + "    reference: artifacts/detector.onnx\n    onnx: artifacts/detector.int8.onnx\n",
        ["3:3: models.m: 'reference' stands for a model; remove it, or 'model'"],
    ),
    "a file against itself": (
        "version: 1\nmodels:\n  m:\n    reference: artifacts/detector.onnx\n"
        "    onnx: artifacts/detector.onnx\n",
        ["4:16: models.m.reference: a file cannot be held against itself; name another"],
    ),
    "arguments of a file": (
        MODEL.replace("a.b:c", "runs/last.pt") + "    args: [1]\n",
        [
            "3:3: models.m: 'model' is a file, which is loaded as it is; remove 'args', or name a "
            "factory"
        ],
    ),
    "a command that says not where": (
        MODEL + "    export: {command: make}\n",
        [
            "6:13: models.m.export: nothing says where the command leaves its file; write {output} "
            "in it for the path, or add 'file: model.onnx'"
        ],
    ),
    "a command beside an exporter": (
        MODEL + '    export: {command: "make {output}", exporter: dynamo, opset: 20}\n',
        [
            "6:13: models.m.export: 'command' makes the file by itself; remove 'exporter', 'opset', "
            "or say it in the command"
        ],
    ),
    "a file without a command": (
        MODEL + "    export: {file: a.onnx}\n",
        [
            "6:13: models.m.export: 'file' is where a 'command' leaves its file; a file that is there "
            "already is named by 'onnx', beside 'export'"
        ],
    ),
    "options that have a key of their own, or another exporter": (
        MODEL
        + "    export: {exporter: torchscript, options: {opset_version: 20, external_dat: true}}\n",
        [
            "6:47: models.m.export.options: 'opset_version' is no option here: write it as 'opset', "
            "beside 'options'",
            "6:66: models.m.export.options: unknown key 'external_dat'; did you mean 'external_data'?",
        ],
    ),
    "an option of the other exporter": (
        MODEL + "    export: {exporter: torchscript, options: {external_data: true}}\n",
        [
            "6:47: models.m.export.options: 'torchscript' does not heed 'external_data', which is for "
            "dynamo"
        ],
    ),
    "an unknown dtype": (
        INPUTS + "flaot32[batch]\n",
        ["6:10: models.m.inputs.x: unknown dtype 'flaot32'; did you mean 'float32'?"],
    ),
    "an input without a shape": (
        INPUTS + "float32\n",
        [
            "6:10: models.m.inputs.x: 'float32' has no shape; "
            "write float32[] for a scalar, or float32[batch, 3, 224, 224]"
        ],
    ),
    "a size of zero": (
        INPUTS + "float32[0, 3]\n",
        [
            "6:10: models.m.inputs.x: the size 0 is impossible; write one from 1 to 2147483647 "
            "(a dynamic dimension is written as a name)"
        ],
    ),
    "a bad dimension": (
        INPUTS + "{dtype: float32, shape: [1, 2d]}\n",
        [
            "6:38: models.m.inputs.x.shape[1]: '2d' is neither a size nor the name of a dynamic "
            "dimension; a name has letters, digits and '_' and begins with no digit"
        ],
    ),
    "a dimension without a name": (
        INPUTS + '"float32[None, 4]"\n',
        [
            "6:10: models.m.inputs.x: None names no dimension; give a dynamic one a name, such as batch"
        ],
    ),
    "integers without a range": (
        INPUTS + "int64[batch, seq]\n",
        [
            "6:10: models.m.inputs.x: an integer input needs a range; "
            "write {dtype: int64, shape: [batch, seq], range: [0, 29999]}"
        ],
    ),
    "integers without a range, among files": (
        "version: 1\nsuites: {f: {files: x.npz}}\nmodels:\n"
        "  m: {model: 'a:b', inputs: {x: 'int8[2]'}, suites: [f, typical]}\n",
        [
            "4:33: models.m.inputs.x: an integer input needs a range; "
            "write {dtype: int8, shape: [2], range: [0, 127]}"
        ],
    ),
    "a range of a bool": (
        INPUTS + "{dtype: bool, shape: [], range: [0, 1]}\n",
        ["6:42: models.m.inputs.x.range: a bool input takes no range; remove it"],
    ),
    "a range upside down": (
        INPUTS + "{dtype: float32, shape: [], range: [1, -1]}\n",
        ["6:45: models.m.inputs.x.range: the range begins at 1.0 above its end -1.0; swap the two"],
    ),
    "a range too wide": (
        INPUTS + "{dtype: uint8, shape: [], range: [0, 256]}\n",
        [
            "6:43: models.m.inputs.x.range: the range [0, 256] is wider than uint8; "
            "stay within [0, 255]"
        ],
    ),
    "a range of fractions": (
        INPUTS + "{dtype: int8, shape: [], range: [0, 0.5]}\n",
        ["6:42: models.m.inputs.x.range: the range of an int8 input needs integers; write [0, 10]"],
    ),
    "an infinite range": (
        INPUTS + "{dtype: float32, shape: [], range: [0, .inf]}\n",
        ["6:49: models.m.inputs.x.range[1]: expected a finite number, found inf"],
    ),
    "an input as a number": (
        INPUTS + "3\n",
        ["6:10: models.m.inputs.x: expected an input such as float32[batch, 3, 224, 224], found 3"],
    ),
    "an unknown suite": (
        MODEL + "    suites: [typical, edgs]\n",
        ["6:23: models.m.suites[1]: unknown suite 'edgs'; did you mean 'edges'?"],
    ),
    "an unknown suite of the defaults, once": (
        "version: 1\ndefaults: {suites: [nope]}\nmodels:\n"
        "  a: {model: 'a:b', inputs: {}}\n  b: {model: 'a:b', inputs: {}}\n",
        ["2:21: defaults.suites[0]: unknown suite 'nope'; known: 'advice', 'edges', 'typical'"],
    ),
    "suites as text": (
        MODEL + "    suites: typical\n",
        ["6:13: models.m.suites: expected a list, found the text 'typical'; write [typical]"],
    ),
    "a suite twice": (
        MODEL + "    suites: [edges, edges]\n",
        ["6:13: models.m.suites: the text 'edges' is listed twice; remove one"],
    ),
    "an unknown kind of suite": (
        TOP + "suites: {s: {randon: normal}}\n",
        ["4:14: suites.s: unknown kind of suite 'randon'; did you mean 'random'?"],
    ),
    "two kinds of suite": (
        TOP + "suites: {s: {random: normal, edges: [zeros]}}\n",
        ["4:13: suites.s: 'random' and 'edges' are two kinds; write them as two suites"],
    ),
    "a suite without a kind": (
        TOP + "suites: {s: {}}\n",
        ["4:13: suites.s: a suite needs a kind; write one of random, edges, files, generator"],
    ),
    "a mistake in a suite": (
        TOP + "suites: {s: {random: norml, cont: 2, count: 0}, t: {edges: [lage]}}\n",
        [
            "4:22: suites.s.random: unknown value 'norml'; did you mean 'normal'?",
            "4:29: suites.s: unknown key 'cont'; did you mean 'count'?",
            "4:45: suites.s.count: must be at least 1, found 0",
            "4:61: suites.t.edges[0]: unknown kind of edge case 'lage'; did you mean 'large'?",
        ],
    ),
    "files outside": (
        TOP + "suites: {s: {files: [ok/*.npz, ../*.npz]}, t: {files: [1]}}\n",
        [
            "4:32: suites.s.files[1]: '../*.npz' leaves the manifest's folder; "
            "keep the file inside it",
            "4:56: suites.t.files[0]: expected a path relative to the manifest's folder, found 1",
        ],
    ),
    "an unknown tolerance": (
        "version: 1\ntolerances: {serving: {auto: 1}}\nmodels:\n"
        "  m: {model: 'a:b', inputs: {}, tolerance: servng, outputs: {y: serv}}\n",
        [
            "4:44: models.m.tolerance: unknown tolerance 'servng'; did you mean 'serving'?",
            "4:65: models.m.outputs.y: unknown tolerance 'serv'; did you mean 'serving'?",
        ],
    ),
    "a tolerance where none is defined": (
        MODEL + "    tolerance: serving\n",
        [
            "6:16: models.m.tolerance: unknown tolerance 'serving'; "
            "none is defined under 'tolerances'"
        ],
    ),
    "tolerances without a criterion": (
        TOP + "tolerances: {a: {}, b: {mismatch: 0.1}, c: {indices: exact}}\n",
        [
            f"4:17: tolerances.a: nothing must hold; name a criterion: {CRITERIA}",
            "4:24: tolerances.b: 'mismatch' alone does not say what must hold; "
            f"name a criterion: {CRITERIA}",
            "4:44: tolerances.c: 'indices' alone does not say what must hold; "
            f"name a criterion: {CRITERIA}",
        ],
    ),
    "halves of criteria": (
        TOP + "tolerances: {a: {metric: 'a:b'}, b: {auto: 1, max: 2}, "
        "c: {auto: 1, mismatch: 0.1}, d: {topk: {k: 5}}}\n",
        [
            "4:17: tolerances.a: 'metric' needs a limit; add 'max', the largest value that passes",
            "4:37: tolerances.b: 'max' is the limit of a metric; add 'metric' or remove 'max'",
            "4:59: tolerances.c: 'mismatch' is a share of what exceeds atol and rtol; "
            "name one of them",
            "4:95: tolerances.d.topk: the key 'agreement' is missing; add it",
        ],
    ),
    "criteria out of bounds": (
        TOP + "tolerances:\n"
        "  a: {auto: 0}\n"
        "  b: {atol: -1}\n"
        "  c: {rtol: .inf}\n"
        "  d: {atol: 1, mismatch: 1}\n"
        "  e: {cosine: 1.5}\n"
        "  f: {top1: 98}\n"
        "  g: {topk: {k: 0, agreement: 1}}\n"
        "  h: {max_ulp: 1.5}\n"
        "  i: {atol: '1e-4'}\n"
        "  j: {auto: true}\n"
        "  k: {auto: 1, indices: exactly}\n",
        [
            "5:13: tolerances.a.auto: must be greater than 0, found 0",
            "6:13: tolerances.b.atol: must be at least 0, found -1",
            "7:13: tolerances.c.rtol: must be a finite number, found inf",
            "8:26: tolerances.d.mismatch: must be less than 1, found 1",
            "9:15: tolerances.e.cosine: must be at most 1, found 1.5",
            "10:13: tolerances.f.top1: must be at most 1, found 98",
            "11:17: tolerances.g.topk.k: must be at least 1, found 0",
            "12:16: tolerances.h.max_ulp: expected an integer, found 1.5",
            "13:13: tolerances.i.atol: expected a number, found the text '1e-4'; remove the quotes",
            "14:13: tolerances.j.auto: expected a number, found true",
            "15:25: tolerances.k.indices: unknown value 'exactly'; did you mean 'exact'?",
        ],
    ),
    "an unknown runtime": (
        MODEL + "    runtimes: [onnxruntim, 'onnxruntime:cuda', {name: openvno}]\n",
        [
            "6:16: models.m.runtimes[0]: unknown runtime 'onnxruntim'; "
            "did you mean 'onnxruntime'? (an engine of another package must be installed)",
            "6:28: models.m.runtimes[1]: unknown runtime 'onnxruntime:cuda'; "
            "write {name: onnxruntime, provider: cuda}",
            "6:55: models.m.runtimes[2].name: unknown runtime 'openvno'; "
            "did you mean 'openvino'? (an engine of another package must be installed)",
        ],
    ),
    "a key that the runtime does not heed": (
        MODEL
        + "    runtimes: [{name: openvino, provider: cuda}, {name: reference, strict: true}]\n",
        [
            "6:33: models.m.runtimes[0]: the runtime 'openvino' does not heed 'provider'; "
            "it takes tolerance, device, options",
            "6:68: models.m.runtimes[1]: the runtime 'reference' does not heed 'strict'; it "
            "takes tolerance",
        ],
    ),
    "a tolerance of a runtime": (
        MODEL + "    runtimes: [{name: openvino, tolerance: {atoll: 1}}, {name: reference, "
        "tolerance: loose}]\n",
        [
            "6:45: models.m.runtimes[0].tolerance: unknown key 'atoll'; did you mean 'atol'?",
            "6:86: models.m.runtimes[1].tolerance: unknown tolerance 'loose'; none is defined under "
            "'tolerances'",
        ],
    ),
    "a runtime twice": (
        MODEL + "    runtimes: [onnxruntime, {name: onnxruntime}]\n",
        ["6:36: models.m.runtimes[1].name: the runtime 'onnxruntime' is listed twice; remove one"],
    ),
    "an unknown level": (
        MODEL + "    runtimes: [{name: onnxruntime, optimization: of}]\n",
        [
            "6:50: models.m.runtimes[0].optimization: unknown optimization level 'of'; "
            "did you mean 'off'?"
        ],
    ),
    "no runtime": (
        MODEL + "    runtimes: []\n",
        ["6:15: models.m.runtimes: at least one entry needed, found 0; add what is missing"],
    ),
    "a dimension of no input": (
        INPUTS + "float32[batch]\n    dims: {bacth: 1}\n",
        ["7:12: models.m.dims: no input has the dimension 'bacth'; did you mean 'batch'?"],
    ),
    "an example with a dimension of no input": (
        INPUTS + "float32[batch]\n    export: {example: {bacth: 3, batch: 0}}\n",
        [
            "7:24: models.m.export.example: no input has the dimension 'bacth'; "
            "did you mean 'batch'?",
            "7:41: models.m.export.example.batch: must be at least 1, found 0",
        ],
    ),
    "a dimension where none is": (
        MODEL + "    dims: {batch: 1}\n",
        [
            "6:12: models.m.dims: no input has the dimension 'batch'; "
            "the inputs have fixed sizes only"
        ],
    ),
    "a likely slip in the dimensions of all": (
        INPUTS + "float32[batch]\ndims: {bacth: 1, seq: 2}\n",
        ["7:8: dims: no input has the dimension 'bacth'; did you mean 'batch'?"],
    ),
    "bad sizes": (
        INPUTS + "float32[a, b, c, d]\n    dims: {a: [], b: [1, 1], c: -1, d: [1, x]}\n",
        [
            "7:15: models.m.dims.a: at least one entry needed, found 0; add what is missing",
            "7:22: models.m.dims.b: 1 is listed twice; remove one",
            "7:33: models.m.dims.c: must be at least 0, found -1",
            "7:44: models.m.dims.d[1]: expected an integer, found the text 'x'",
        ],
    ),
    "an unknown exporter": (
        MODEL + "    export: {exporter: dynam, opset: 20.5}\n",
        [
            "6:24: models.m.export.exporter: unknown exporter 'dynam'; "
            "did you mean 'dynamo'? (or package.module:function)",
            "6:38: models.m.export.opset: expected an integer, found 20.5",
        ],
    ),
    "an exporter by what it is made with, and a provider by what it runs on": (
        MODEL
        + "    export: {exporter: onnxscript}\n    runtimes: [{name: onnxruntime, provider: gpu}]\n",
        [
            "6:24: models.m.export.exporter: unknown exporter 'onnxscript'; "
            "did you mean 'dynamo'? (or package.module:function)",
            "7:46: models.m.runtimes[0].provider: no execution provider is called 'gpu'; "
            "did you mean 'cuda'?",
        ],
    ),
    "limits": (
        MODEL + "    timeout: 10 minutes\n    memory: 8\n    seed: -1\n    required: maybe\n",
        [
            "6:14: models.m.timeout: '10 minutes' is not a duration; write 90s, 10m or 1h30m",
            "7:13: models.m.memory: 8 bytes is no useful limit; write it with a unit, as in 8GiB",
            "8:11: models.m.seed: must be at least 0, found -1",
            "9:15: models.m.required: expected true or false, found the text 'maybe'",
        ],
    ),
    "waivers": (
        MODEL + "    waivers:\n"
        "      - {check: 'a/*', until: 2027-02-30, reason: ' '}\n"
        "      - {check: 'a/*', ceiling: -1, reason: x}\n",
        [
            "7:31: models.m.waivers[0].until: '2027-02-30' is not a date; "
            "write year-month-day, as in 2027-03-31",
            "7:51: models.m.waivers[0].reason: expected text, found empty text",
            "8:9: models.m.waivers[1]: the key 'until' is missing; "
            "add 'until: 2027-03-31', the last day of the waiver",
            "8:33: models.m.waivers[1].ceiling: must be at least 0, found -1",
        ],
    ),
    "outputs": (
        MODEL + "    outputs: [a, a]\n",
        ["6:14: models.m.outputs: the text 'a' is listed twice; remove one"],
    ),
    "a model's own key among the defaults": (
        TOP + "defaults: {inputs: {}}\n",
        ["4:12: defaults: 'inputs' belongs to each model; move it there"],
    ),
    "a word of two meanings": (
        MODEL + "    kwargs: {pretrained: no, deep: [{x: on}], quoted: 'no'}\n",
        [
            "6:26: models.m.kwargs.pretrained: an unquoted word that is false in YAML 1.1 and "
            "text in YAML 1.2; write false, or put it in quotes",
            "6:41: models.m.kwargs.deep[0].x: an unquoted word that is true in YAML 1.1 and "
            "text in YAML 1.2; write true, or put it in quotes",
        ],
    ),
    "everything at once": (
        "version: 2\n"
        "requirements: reqs.txt\n"
        "suites: {mine: {random: 1}, s: {generator: 'tests/input.py:f'}}\n"
        "tolerances: {t: {metric: 'x.py:f', max: 1}}\n"
        "models:\n"
        "  a: {inputs: {}, tolerance: zz}\n"
        "  b:\n"
        "    model: a:b\n"
        "    inputs: {x: 'float[1]', y: 'int8[n]'}\n"
        "    dims: {m: 1}\n"
        "    suites: [mine, t]\n"
        "    tolerance: zz\n"
        "    seed: x\n",
        [
            "1:10: version: must be 1, found 2; this onnx-gate reads version 1",
            "2:15: requirements: no such file: 'reqs.txt'; did you mean 'requirements.txt'?",
            "3:25: suites.mine.random: expected 'normal', 'uniform' or 'lognormal', found 1",
            "3:44: suites.s.generator: no such file: 'tests/input.py'; did you mean 'inputs.py'?",
            "4:26: tolerances.t.metric: no such file: 'x.py'; "
            "paths are relative to the manifest's folder",
            "6:6: models.a: the key 'model' is missing; add 'model: models/resnet.py:build'",
            "9:17: models.b.inputs.x: unknown dtype 'float'; did you mean 'float32'?",
            "11:20: models.b.suites[1]: unknown suite 't'; "
            "known: 'advice', 'edges', 'mine', 's', 'typical'",
            "12:16: models.b.tolerance: unknown tolerance 'zz'; known: 't'",
            "13:11: models.b.seed: expected an integer, found the text 'x'",
        ],
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_messages(complaints: Complaints, name: str) -> None:
    text, expected = GOLDEN[name]
    assert complaints(text) == expected
