"""Which model of which run brings about each code."""

from __future__ import annotations

RUNS = ("good", "bad", "hostile", "findings", "hints")

# code -> runs and models that have to show it. good, bad and hostile are those of tests/e2e.
TRIGGERS: dict[str, tuple[tuple[str, str], ...]] = {
    "OG101": (("good", "training"),),
    "OG102": (("bad", "static_batch"), ("bad", "guarded"), ("findings", "parity")),
    "OG103": (("good", "double"), ("findings", "wide")),
    "OG104": (("bad", "wrong_inputs"),),
    "OG105": (("bad", "raising"), ("hostile", "raises")),
    "OG106": (("bad", "counter"), ("bad", "late_counter"), ("bad", "buffered"), ("bad", "noisy")),
    "OG107": (("bad", "unknown_output"),),
    "OG108": (("bad", "wrong_case"), ("bad", "no_case")),
    "OG109": (("findings", "caching"),),
    "OG110": (("good", "in_place"),),
    "OG111": (("findings", "drawing"),),
    "OG112": (("findings", "unused"), ("findings", "renamed_input")),
    "OG113": (("findings", "live_dropout"), ("hints", "standardising")),
    "OG114": (("bad", "random_noise"), ("hints", "scattering")),
    "OG115": (("bad", "named_outputs"), ("hints", "renamed"), ("findings", "counted")),
    "OG116": (
        ("bad", "guarded"),
        ("bad", "fixed"),
        ("findings", "grouped"),
        ("findings", "parity"),
    ),
    "OG117": (("bad", "invalid"), ("findings", "too_new_operator"), ("findings", "named_twice")),
    "OG118": (("bad", "low_opset"), ("findings", "unlowered"), ("findings", "high_opset")),
    "OG119": (("hints", "converted"),),
    "OG120": (("findings", "false_shape"),),
    "OG121": (("findings", "double_input"),),
    "OG122": (("hints", "narrowed"),),
    "OG124": (("findings", "tiny_constant"), ("hints", "dividing")),
    "OG125": (("hints", "stale"),),
    "OG126": (("findings", "log_sigmoid"), ("hints", "log_sigmoid")),
    "OG127": (("findings", "misfit"),),
    "OG128": (("findings", "cacheless"),),
    "OG130": (("findings", "without_reference"),),
    "OG201": (("findings", "decomposed"), ("findings", "resampled")),
    "OG202": (("bad", "no_kernel"), ("findings", "unknown_domain")),
    "OG203": (("bad", "branching"), ("findings", "packed")),
    "OG204": (("bad", "exploding"), ("bad", "not_a_module"), ("findings", "missing")),
    "OG205": (("bad", "bad_weights"), ("findings", "parallel"), ("findings", "pickled")),
    "OG206": (("findings", "tied"), ("findings", "recurrent"), ("findings", "bounded")),
    "OG207": (("bad", "nothing_written"), ("findings", "raising_exporter")),
    "OG208": (("bad", "garbage"), ("findings", "missing_weights")),
    "OG209": (
        ("findings", "custom"),
        ("findings", "custom_torchscript"),
        ("findings", "untraceable"),
    ),
    "OG210": (("findings", "oversized"),),
    "OG211": (("findings", "unreleased"),),
    "OG214": (("findings", "old_packages"),),
    "OG301": (("bad", "no_provider"), ("bad", "silent_fallback")),
    "OG302": (("findings", "session_option"),),
    "OG303": (("findings", "newest_opset"),),
    "OG304": (("findings", "bfloat16_dropout"),),
    "OG305": (("findings", "double_input"),),
    "OG306": (("hints", "fused"),),
    "OG307": (("findings", "unplaced"), ("findings", "killing")),
    "OG309": (("findings", "shortened"),),
    "OG310": (("findings", "killing"),),
    "OG401": (("findings", "offset"),),
    "OG402": (("bad", "fixed"),),
    "OG403": (("good", "attention"),),
    "OG404": (("findings", "unseen"),),
    "OG405": (("bad", "broken_metric"),),
    "OG406": (("hints", "fragile"),),
    "OG407": (("findings", "loose"),),
    "OG408": (("findings", "threshold"),),
    "OG409": (("findings", "couples"),),
    "OG410": (("findings", "unmasked"),),
    "OG411": (("findings", "masked"),),
    "OG412": (("findings", "miscarried"),),
    "OG413": (("findings", "choosing"),),
    "OG414": (("findings", "choosing"),),
    "OG415": (("hints", "quantising"),),
    "OG416": (("findings", "edgeless"),),
    "OG417": (("findings", "stale_row"),),
    "OG418": (("findings", "logarithm"),),
    "OG419": (("findings", "unreached"),),
    "OG420": (("hints", "overflowing"),),
    "OG501": (("hostile", "exits"), ("hostile", "segfaults")),
    "OG502": (("hostile", "loops"),),
    "OG503": (("hostile", "allocates"),),
    "OG504": (("hostile", "corrupts"),),
    "OG505": (("hostile", "sabotages"),),
    "OG507": (("hostile", "multiplies"),),
    "OG601": (("bad", "expired_waiver"),),
    "OG602": (("findings", "unneeded_waiver"),),
    "OG701": (("hints", "remainder"), ("hints", "quotient")),
    "OG702": (("hints", "rounding"),),
    "OG703": (("hints", "enlarging"),),
    "OG704": (("hints", "overflowing"),),
    "OG705": (("hints", "masked"),),
    "OG706": (("hints", "normalising"), ("bad", "wrong_epsilon")),
    "OG707": (("hints", "activating"),),
    "OG708": (("hints", "choosing"),),
    "OG709": (("hints", "nan_pooling"),),
    "OG710": (("hints", "pooling"),),
    "OG711": (("hints", "summing"),),
    "OG712": (("hints", "rooting"),),
    "OG713": (("hints", "looking_up"),),
    "OG714": (("hints", "shortening"),),
    "OG715": (("hints", "gating"),),
    "OG716": (("hints", "attending"), ("hints", "converted")),
    "OG717": (("hints", "quantising"),),
}

# Codes of reports that were put together of several, of audits, and of blocks: no run brings them about.
MERGED = {
    "OG430": "tests/gate/test_against.py",
    "OG431": "tests/gate/test_against.py",
    "OG432": "tests/verify/test_loads.py",
    "OG433": "tests/verify/test_blocks.py",
    "OG434": "tests/verify/test_blocks.py",
    "OG506": "tests/gate/test_merge.py",
    "OG603": "tests/audit/test_audit.py",
}

# What a code also covers and no machine without the device can bring about.
ELSEWHERE = {
    "OG301": "a GPU provider that loads and leaves nodes to the CPU; AzureExecutionProvider, which "
    "is in every build and runs nothing, stands for it",
    "OG717": "sums of u8 by s8 that saturate, on a processor without VNNI",
}

# Appearances that a test of their own brings about, and which one that is.
APPEARS_ELSEWHERE = {
    "OG101": ({"finding of severity note"}, "tests/verify/test_build.py"),
    "OG117": ({"finding of severity warning"}, "tests/diagnose/test_reduced.py"),
    "OG121": ({"finding of severity note"}, "tests/diagnose/test_reduced.py"),
    "OG420": ({"finding of severity warning"}, "tests/diagnose/test_half.py"),
    "OG415": (
        {"finding of severity warning", "finding of severity error"},
        "tests/diagnose/test_reduced.py",
    ),
}

# Codes of runtimes that are not installed everywhere, and the test that brings each about.
OPTIONAL = {
    "OG320": "engines/tests/test_web.py",
    "OG321": "engines/tests/test_web.py",
    "OG326": "engines/tests/test_web.py",
}
