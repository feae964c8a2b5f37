"""Names that transformers writes into a folder of ``save_pretrained``, and those that its modules have.

From version 5 on a class may call its parts otherwise than the files of the Hub do: ``save_pretrained``
writes the Hub's names, and ``from_pretrained`` renames what it reads, and merges some of it (the matrices
of a mixture's experts into one). transformers has both as data, which are read here. A name is changed
without a value being read; what is merged or split cannot be told by names.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class HubNames:
    """What a module calls the tensors of a file, by the file's names, and whether that is all.

    ``merged`` are the names of those that transformers makes others of as it loads.
    """

    own: Mapping[str, str]
    merged: frozenset[str]


def hub_names(module: nn.Module, stored: Collection[str], own: Collection[str]) -> HubNames | None:
    """Return how transformers renames what is stored; ``None`` where it does not, or cannot be asked.

    What has one of the module's ``own`` names already keeps it, as in ``from_pretrained``.
    """
    # A module of transformers' has imported it; for others nothing is.
    loaded = sys.modules.get("transformers.modeling_utils")
    if loaded is None or not isinstance(module, loaded.PreTrainedModel):
        return None
    with suppress(Exception):  # no part of what it promises: other versions have other names
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import (
            WeightConverter,
            WeightRenaming,
            rename_source_key,
        )

        every = get_model_conversion_mapping(module)
        renamings = [each for each in every if isinstance(each, WeightRenaming)]
        converters = [each for each in every if isinstance(each, WeightConverter)]
        named: dict[str, str] = {}
        merged: set[str] = set()
        for name in sorted(stored):
            named[name], by = (
                (name, None) if name in own else rename_source_key(name, renamings, converters)
            )
            if by is not None:
                merged.add(name)
        several = Counter(named.values())
        merged |= {name for name, mine in named.items() if several[mine] > 1}
        changed = {name: mine for name, mine in named.items() if mine != name}
        if changed:
            kept = {name: mine for name, mine in changed.items() if name not in merged}
            return HubNames(kept, frozenset(merged))
    return None
