"""From what is written to what is meant: defaults merged, names looked up, files found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from onnx_gate.manifest import nesting, paths, shapes, spec, steps
from onnx_gate.manifest.dimensions import names_of
from onnx_gate.manifest.engines import ENGINES, engine, unheeded
from onnx_gate.manifest.entries import CacheEntry, RuntimeEntry
from onnx_gate.manifest.exports import OF_EXPORTER, ExportEntry
from onnx_gate.manifest.inputs import (
    bounds_problems,
    expanded,
    possible_sizes,
    size_problems,
    twice,
)
from onnx_gate.manifest.problems import Keys, Mistake
from onnx_gate.manifest.schema import DefaultsEntry, ManifestFile, ModelEntry
from onnx_gate.manifest.sizes import default_sizes
from onnx_gate.manifest.source import Source
from onnx_gate.manifest.suites import (
    BUILT_IN_KINDS,
    EdgesEntry,
    FilesEntry,
    GeneratorEntry,
    PluginEntry,
    RandomEntry,
    SuiteEntry,
)
from onnx_gate.manifest.tolerance_entries import OutputEntry, ToleranceEntry
from onnx_gate.manifest.validate import MAX_MISTAKES, Checked
from onnx_gate.text import did_you_mean, quote

BUILT_IN_RUNTIMES = tuple(ENGINES)


def registered(group: str) -> frozenset[str]:
    """The names that installed packages register in a group of entry points."""
    from onnx_gate.plugins import plugins  # slow, and needed by few manifests

    return frozenset(plugins(group).names)


class Resolver:
    """The models of a manifest; ``mistakes`` has what was found on the way.

    Without a ``workspace`` nothing is looked for outside the manifest: no file, no package.
    """

    def __init__(
        self, checked: Checked, source: Source, workspace: Path | None, *, files: bool = False
    ) -> None:
        self.mistakes: list[Mistake] = []
        self._damaged = checked.damaged
        self._source = source
        self._workspace, self._files = workspace, files
        self._used_dims: set[str] = set()

    def resolve(self, file: ManifestFile) -> tuple[spec.ModelSpec, ...]:
        """Every model that could be read; complete only where there are no mistakes."""
        if file.requirements is not None:
            self._find(("requirements",), file.requirements)
        self._suites: dict[str, spec.Suite | None] = dict(spec.BUILT_IN_SUITES)
        self._suites |= dict.fromkeys(self._names("suites"))
        for name, suite in (file.suites or {}).items():
            self._suites[name] = self._suite(("suites", name), suite)
        self._tolerances: dict[str, spec.Tolerance | None] = dict.fromkeys(
            self._names("tolerances")
        )
        for name, tolerance in (file.tolerances or {}).items():
            self._tolerances[name] = self._inline(("tolerances", name), tolerance)
        defaults = file.defaults or DefaultsEntry()
        models = tuple(
            self._model(name, model, defaults, file.dims or {})
            for name, model in file.models.items()
        )
        if not any(path[:1] == ("models",) for path in self._damaged):
            self._likely_typos(("dims",), file.dims or {})
            self._likely_typos(("defaults", "dims"), defaults.dims or {})
        return models

    def _model(
        self,
        name: str,
        model: ModelEntry,
        defaults: DefaultsEntry,
        dims: Mapping[str, tuple[int, ...]],
    ) -> spec.ModelSpec:
        here: Keys = ("models", name)
        set_here = model.model_fields_set
        origin = {
            key: here if key in set_here else ("defaults",) for key in type(defaults).model_fields
        }
        merged: dict[str, Any] = {
            key: getattr(model if key in set_here else defaults, key) for key in origin
        }
        if model.model is not None:
            self._find_reference((*here, "model"), model.model)
        for key, path in (("reference", model.reference), ("onnx", model.onnx)):
            if path is not None:
                self._find((*here, key), path)
        if model.weights is not None and self._workspace is not None:
            wrong = paths.weights_complaint(self._workspace, model.weights.file)
            self._tell((*here, "weights", "file"), wrong)
        if model.reference is not None and model.reference == model.onnx:
            self._tell((*here, "reference"), "a file cannot be held against itself; name another")
        suites = self._chosen_suites((*origin["suites"], "suites"), merged["suites"])
        written = model.inputs or {}
        inputs = expanded(written)
        self._need_ranges(here, inputs, suites)
        for key, problem in (*twice(written), *nesting.problems(list(inputs))):
            self._tell((*here, "inputs", key), problem, at_key=True)
        taken = {*inputs, *(nesting.parts(name)[0] for name in inputs)}
        for key in taken & (merged["call"] or {}).keys():
            self._tell(
                (*origin["call"], "call", key), "also one of the inputs; name it in one place only"
            )
        used = {n for each in inputs.values() for dim in each.shape for n in names_of(dim)}
        self._used_dims |= used
        if model.inputs is not None and not self._is_damaged((*here, "inputs")):
            self._unused_dims((*here, "dims"), model.dims or {}, used)
        sizes = {**dims, **(defaults.dims or {}), **(model.dims or {})}
        timeout, memory = merged["timeout"], merged["memory"]
        if model.inputs is None:
            # Which dimensions the file has is known once it is read.
            used = set(sizes)
        usual = default_sizes(inputs)
        own = {dim: sizes[dim] for dim in used & sizes.keys()}
        for key, problem in (*size_problems(inputs, own), *bounds_problems(inputs, own)):
            self._tell((*here, "inputs", self._written(here, key)), problem)
        outputs = (*origin["outputs"], "outputs")
        # The inputs of a file that stands for the model are its own.
        if model.steps is not None and inputs and not self._is_damaged((*here, "inputs")):
            for keys, message in steps.mistakes(model.steps, inputs):
                self._tell((*here, "steps", *keys), message, at_key=True)
        return spec.ModelSpec(
            name=name,
            model=model.model,
            reference=model.reference,
            args=merged["args"] or (),
            kwargs=merged["kwargs"] or {},
            call=merged["call"] or {},
            weights=None
            if model.weights is None
            else spec.WeightsSpec(model.weights.file, model.weights.key, model.weights.strip),
            onnx=model.onnx,
            inputs=inputs,
            caches={n: e.cache for n, e in written.items() if isinstance(e, CacheEntry)},
            outputs=self._outputs(outputs, merged["outputs"]),
            where=self._where(outputs, merged["outputs"], inputs),
            export=self._export(here, model, defaults, used),
            dims={
                dim: sizes.get(dim) or possible_sizes(dim, usual[dim], inputs)
                for dim in sorted(used)
            },
            named_dims=frozenset(used & sizes.keys()),
            runtimes=self._runtimes((*origin["runtimes"], "runtimes"), merged["runtimes"]),
            suites={key: suite for key, suite in suites.items() if suite is not None},
            steps=None if model.steps is None else spec.StepsSpec(**dict(model.steps)),
            tolerance=self._tolerance((*origin["tolerance"], "tolerance"), merged["tolerance"])
            or spec.Tolerance(auto=spec.DEFAULT_AUTO),
            timeout=spec.DEFAULT_TIMEOUT if timeout is None else timeout,
            memory=memory,
            seed=merged["seed"] or 0,
            required=merged["required"] is not False,
            waivers=tuple(
                spec.Waiver(each.check, each.until, each.reason, each.ceiling)
                for each in merged["waivers"] or ()
            ),
            line=self._source.keys[here].line,
        )

    def _suite(self, here: Keys, entry: SuiteEntry | PluginEntry) -> spec.Suite | None:
        if isinstance(entry, RandomEntry):
            return spec.RandomSuite(entry.random, entry.count, entry.seed)
        if isinstance(entry, EdgesEntry):
            return spec.EdgesSuite(entry.edges, entry.seed)
        if isinstance(entry, FilesEntry):
            if self._files and self._workspace is not None:
                for pattern in entry.files:
                    self._tell((*here, "files"), paths.files_complaint(self._workspace, pattern))
            return spec.FilesSuite(entry.files)
        if isinstance(entry, GeneratorEntry):
            self._find_reference((*here, "generator"), entry.generator)
            return spec.GeneratorSuite(entry.generator, entry.seed)
        options = entry.options if isinstance(entry, PluginEntry) else {}
        kinds = registered("onnx_gate.suites") | BUILT_IN_KINDS.keys()
        for kind in options:
            if kind in kinds:
                return spec.PluginSuite(kind, options)
        first = next(iter(options))
        if self._workspace is None:
            return spec.PluginSuite(first, options)
        what = f"unknown kind of suite {quote(first)}{self._likeness(first, kinds)}"
        self._tell((*here, first), what, at_key=True)
        return None

    def _chosen_suites(
        self, here: Keys, choices: tuple[str | SuiteEntry | PluginEntry, ...] | None
    ) -> dict[str, spec.Suite | None]:
        suites: dict[str, spec.Suite | None] = {}
        named = {each for each in choices or () if isinstance(each, str)}
        for index, choice in enumerate(choices or ()):
            if not isinstance(choice, str):
                kind = choice.kind
                numbered = (f"{kind}-{n}" if n > 1 else kind for n in count(1))
                name = next(each for each in numbered if each not in named | suites.keys())
                suites[name] = self._suite((*here, index), choice)
                continue
            if choice not in self._suites:
                self._tell(
                    (*here, index),
                    f"unknown suite {quote(choice)}{self._likeness(choice, self._suites)}",
                )
            suites[choice] = self._suites.get(choice)
        return suites

    def _need_ranges(
        self,
        here: Keys,
        inputs: Mapping[str, spec.InputSpec],
        suites: Mapping[str, spec.Suite | None],
    ) -> None:
        """Integers are never drawn from a range that nobody named."""
        unknown = None in suites.values() or any(
            self._is_damaged(path) for path in ((*here, "suites"), ("defaults", "suites"))
        )
        own_values = bool(suites) and all(
            isinstance(suite, spec.FilesSuite | spec.GeneratorSuite) for suite in suites.values()
        )
        if unknown or own_values:
            return
        for name, each in inputs.items():
            path = (*here, "inputs", self._written(here, name))
            needed = each.dtype in shapes.INTEGER_BOUNDS and not each.has_range
            if needed and not self._is_damaged(path):
                example = shapes.suggestion(each.dtype, each.shape)
                self._tell(path, f"an integer input needs a range; write {example}")

    def _unused_dims(self, here: Keys, dims: Iterable[str], used: set[str]) -> None:
        for dim in dims:
            if dim not in used:
                hint = self._likeness(dim, used) if used else "; the inputs have fixed sizes only"
                self._unused_dim(here, dim, hint)

    def _likely_typos(self, here: Keys, dims: Mapping[str, object]) -> None:
        """Sizes for all models may serve none of them, unless they look meant for one."""
        for dim in dims:
            if dim not in self._used_dims:
                hint = self._likeness(dim, self._used_dims - dims.keys())
                if "did you mean" in hint:
                    self._unused_dim(here, dim, hint)

    def _unused_dim(self, here: Keys, dim: str, hint: str) -> None:
        self._tell((*here, dim), f"no input has the dimension {quote(dim)}{hint}", at_key=True)

    def _export(
        self, here: Keys, model: ModelEntry, defaults: DefaultsEntry, used: set[str]
    ) -> spec.ExportSpec:
        made: dict[str, Any] = {}
        for origin, entry in ((("defaults",), defaults.export), (here, model.export)):
            for key in entry.model_fields_set if entry else ():
                made[key] = getattr(entry, key)
                if key == "exporter" and ":" in made[key]:
                    self._find_reference((*origin, "export", "exporter"), made[key])
            if entry is not None and "exporter" in entry.model_fields_set:
                made = {key: value for key, value in made.items() if key not in ("command", "file")}
        if made.get("command") is not None:
            return spec.ExportSpec(spec.COMMAND, command=made["command"], file=made.get("file"))
        made["options"] = self._export_options(here, model, made)
        if not self._is_damaged((*here, "inputs")):
            own = model.export.example if model.export else None
            self._unused_dims((*here, "export", "example"), own or {}, used)
        # What holds for all models may name dimensions that this one lacks.
        made["example"] = {
            dim: size for dim, size in (made.get("example") or {}).items() if dim in used
        }
        return spec.ExportSpec(**made)

    def _export_options(
        self, here: Keys, model: ModelEntry, made: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The options of torch.onnx.export; one that the exporter does not heed is a mistake."""
        exporter = made.get("exporter", spec.ExportSpec.exporter)
        entry = made.get("options")
        options = {key: getattr(entry, key) for key in entry.model_fields_set} if entry else {}
        given = {**options, **({"optimize": None} if "optimize" in made else {})}
        heeded = (*OF_EXPORTER.get(exporter, ()), *(("optimize",) if exporter == "dynamo" else ()))
        for key in sorted(given.keys() - set(heeded)):
            origin = here if model.export and _writes(model.export, key) else ("defaults",)
            inner = () if key == "optimize" else ("options",)
            others = [name for name, known in OF_EXPORTER.items() if key in known] or ["dynamo"]
            self._tell(
                (*origin, "export", *inner, key),
                f"{quote(exporter)} does not heed {quote(key)}, which is for {' and '.join(others)}",
                at_key=True,
            )
        return options

    def _runtimes(
        self, here: Keys, entries: tuple[RuntimeEntry, ...] | None
    ) -> tuple[spec.RuntimeSpec, ...]:
        if entries is None:
            return (spec.RuntimeSpec("onnxruntime"),)
        made: list[spec.RuntimeSpec] = []
        labels: set[str] = set()
        for index, entry in enumerate(entries):
            path = (*here, index, "name")
            self._known_runtime(path, entry.name)
            given = {key: getattr(entry, key) for key in type(entry).model_fields}
            self._heeded((*here, index), entry)
            given["tolerance"] = self._tolerance((*here, index, "tolerance"), entry.tolerance)
            runtime = spec.RuntimeSpec(**given)
            if runtime.label in labels:
                self._tell(path, f"the runtime {quote(runtime.label)} is listed twice; remove one")
            labels.add(runtime.label)
            made.append(runtime)
        return tuple(made)

    def _heeded(self, path: Keys, entry: RuntimeEntry) -> None:
        for key in unheeded(entry.name, sorted(entry.model_fields_set)):
            takes = ", ".join(("tolerance", *(engine(entry.name).keys or ())))
            self._tell(
                (*path, key),
                f"the runtime {quote(entry.name)} does not heed {quote(key)}; it takes {takes}",
                at_key=True,
            )

    def _known_runtime(self, path: Keys, name: str) -> None:
        if name in BUILT_IN_RUNTIMES or self._workspace is None:
            return
        known = registered("onnx_gate.runtimes") | set(BUILT_IN_RUNTIMES)
        if name in known:
            return
        engine, colon, provider = name.partition(":")
        if colon and engine in known:
            hint = f"; write {{name: {engine}, provider: {provider}}}"
        else:
            hint = self._likeness(name, known)
            hint += " (an engine of another package must be installed)"
        self._tell(path, f"unknown runtime {quote(name)}{hint}")

    def _written(self, here: Keys, name: str) -> str:
        """Return the key of an input in the manifest, of which a cache has one for all its tensors."""
        written = self._source.known((*here, "inputs", name))
        return name if len(written) > len(here) + 1 else nesting.parts(name)[0]

    def _outputs(
        self, here: Keys, written: Mapping[str, str | OutputEntry | None] | None
    ) -> dict[str, spec.Tolerance | None] | None:
        if written is None:
            return None
        return {
            name: None
            if isinstance(each, OutputEntry) and not each.is_tolerance
            else self._tolerance((*here, name), each)
            for name, each in written.items()
        }

    def _where(
        self,
        here: Keys,
        written: Mapping[str, str | OutputEntry | None] | None,
        inputs: Mapping[str, spec.InputSpec],
    ) -> dict[str, str]:
        """Return which input says where each output counts."""
        masks = {
            name: each.where
            for name, each in (written or {}).items()
            if isinstance(each, OutputEntry) and each.where is not None
        }
        for name, mask in masks.items():
            path = (*here, name, "where")
            if mask not in inputs:
                self._tell(path, f"no input is called {quote(mask)}{self._likeness(mask, inputs)}")
            elif not inputs[mask].shape:
                self._tell(
                    path, f"{quote(mask)} is a single number; a mask has a value for each position"
                )
        return masks

    def _tolerance(self, here: Keys, written: str | ToleranceEntry | None) -> spec.Tolerance | None:
        if written is None:
            return None
        if isinstance(written, ToleranceEntry):
            return self._inline(here, written)
        if written not in self._tolerances:
            hint = self._likeness(written, self._tolerances)
            if not self._tolerances:
                hint += " under 'tolerances'"
            self._tell(here, f"unknown tolerance {quote(written)}{hint}")
        return self._tolerances.get(written)

    def _inline(self, here: Keys, entry: ToleranceEntry) -> spec.Tolerance:
        if entry.metric is not None:
            self._find_reference((*here, "metric"), entry.metric)
        given = {key: getattr(entry, key) for key in entry.model_fields_set - {"where"}}
        if entry.topk is not None:
            given["topk"] = spec.TopK(entry.topk.k, entry.topk.agreement)
        return spec.Tolerance(**given)

    def _names(self, section: str) -> Iterable[str]:
        """The names that a section defines, those of broken definitions too."""
        written = self._source.data.get(section)
        return list(written) if isinstance(written, dict) else ()

    def _is_damaged(self, path: Keys) -> bool:
        return any(cut[: len(path)] == path or path[: len(cut)] == cut for cut in self._damaged)

    def _find(self, here: Keys, path: str) -> None:
        if self._workspace is not None:
            self._tell(here, paths.complaint(self._workspace, path))

    def _find_reference(self, here: Keys, reference: str) -> None:
        if self._workspace is not None:
            self._tell(here, paths.reference_complaint(self._workspace, reference))

    def _likeness(self, name: str, known: Iterable[str]) -> str:
        """Looking for a likeness is slow; nobody reads the ones after the first problems."""
        return did_you_mean(name, known) if len(self.mistakes) <= MAX_MISTAKES else ""

    def _tell(self, path: Keys, message: str | None, *, at_key: bool = False) -> None:
        if message is not None:
            self.mistakes.append(Mistake(self._source.known(path), message, at_key))


def _writes(entry: ExportEntry, key: str) -> bool:
    options = entry.options.model_fields_set if entry.options else ()
    return key in entry.model_fields_set or key in options
