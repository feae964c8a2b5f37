"""Every entry of the book shows with what is installed, or is fixed there and fits nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from packaging.specifiers import SpecifierSet
from pydantic import ValidationError

from onnx_gate.known import Failure, PublicFault, find, of_error
from onnx_gate.known.book import faults, versions
from tests.support.known.proofs import PROOFS, Proof
from tests.support.known.showing import facts_as

BOOK = {
    (fault.link.removeprefix("https://github.com/"), fault.exporter): fault for fault in faults()
}


def _fault(proof: Proof) -> PublicFault:
    found = [f for (link, _), f in BOOK.items() if link.endswith(proof.thread) and f.stage]
    exact = [f for f in found if f.exporter == proof.exporter]
    (fault,) = exact or found
    return fault


@pytest.mark.parametrize("proof", PROOFS, ids=lambda proof: f"{proof.thread}{proof.exporter}")
def test_an_entry_shows_or_is_mended(proof: Proof) -> None:
    fault = _fault(proof)
    if proof.needs:
        pytest.importorskip(proof.needs)
    if proof.flag not in Path("/proc/cpuinfo").read_text():
        pytest.skip(f"the kernel at fault is one for processors with {proof.flag}")
    shown = proof.show()
    if proof.told is None:
        assert shown is not None, "it is fixed: say so in the book, and give what it was"
        found = find(facts_as(shown, proof.exporter))
        assert found is not None
        assert found.link == fault.link
        if not isinstance(shown, Failure):
            assert of_error(shown, proof.exporter) == fault.known
        return
    if fault.provider:  # of a device that is not here
        assert shown is None
        here = replace(proof.told, versions=versions())
        found = find(here)
        assert found == fault.known
        assert find(replace(here, provider="")) is None
        return
    # Fixed: it is right here, is not linked with what is installed, and was with what had it.
    assert fault.fixed
    assert shown is None or facts_as(shown, proof.exporter).message not in ("", proof.told.message)
    assert find(replace(proof.told, versions=versions())) is None
    assert not SpecifierSet(fault.affected).contains(versions()[fault.package], prereleases=True)
    old = MappingProxyType({str(fault.package): proof.at})
    found = find(replace(proof.told, versions=old))
    assert found is not None
    assert found.link == fault.link


def test_every_entry_has_its_proof() -> None:
    """Sixty public threads of all five projects, at least."""
    proven = {id(_fault(proof)) for proof in PROOFS}
    assert {f"{f.link} {f.exporter}" for f in BOOK.values() if id(f) not in proven} == set()
    assert len({fault.link for fault in BOOK.values()}) >= 60
    assert {fault.package for fault in BOOK.values()} == set(versions())


def test_an_operator_alone_is_no_fingerprint() -> None:
    """What would fit by the mere presence of an operator is refused when the book is read."""
    said = {
        "title": "Relu",
        "link": "https://github.com/openvinotoolkit/openvino/issues/1",
        "package": "openvino",
        "affected": ">=1",
        "stage": "diverged",
        "engine": "openvino",
        "blame": ["kernel"],
        "operator": ["Relu"],
    }
    with pytest.raises(ValidationError, match="says too little"):
        PublicFault.model_validate(said)
    fault = PublicFault.model_validate({**said, "nonfinite": True})
    facts = Failure(
        "diverged", {"openvino": "2"}, engine="openvino", blame="kernel", operator="Relu"
    )
    assert find(facts, [fault]) is None
    assert find(replace(facts, nonfinite=True), [fault]) == fault.known
    assert find(replace(facts, nonfinite=True, blame="exporter"), [fault]) is None
    assert find(replace(facts, nonfinite=True, versions={}), [fault]) is None


@pytest.mark.parametrize(
    ("call", "known"),
    [
        (
            "%div : call_function[target=torch.ops.aten.div.Tensor](args = (%x, %add), kwargs = {})",
            False,
        ),
        (
            "%div : call_function[target=torch.ops.aten.div.Tensor_mode](args = (%x, 0.1), "
            "kwargs = {rounding_mode: floor})",
            True,
        ),
    ],
)
def test_a_quotient_is_no_floor_division(call: str, known: bool) -> None:
    told = Failure(
        "diverged",
        versions(),
        exporter="dynamo",
        engine="onnxruntime",
        blame="exporter",
        operator="Div",
        dtypes=("float32", "float32"),
        source=call,
    )
    assert (find(told) is not None) is known
