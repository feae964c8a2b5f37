"""Operators whose results are not rounded, because they move, select or compare values.

Once as PyTorch calls them and once as ONNX does: a module is watched by the one, a file by the other.
"""

from __future__ import annotations

# What scatters by choosing rounds nothing either: as PyTorch and as ONNX call it.
CHOOSING = frozenset({"amax", "amin", "max", "min", "none"})

EXACT_ATEN = frozenset(
    [
        *("abs", "_adaptive_max_pool2d", "adaptive_max_pool2d", "adaptive_max_pool3d", "alias"),
        *("alias_copy", "amax", "amin", "aminmax", "as_strided", "block_diag", "bucketize", "cat"),
        *("ceil", "channel_shuffle", "clamp", "clamp_max", "clamp_min", "clone", "complex"),
        *("constant_pad_nd", "contiguous", "copy", "copysign", "cummax", "cummin", "detach"),
        *("diag_embed", "diagonal", "diagonal_scatter", "embedding", "empty", "empty_like"),
        *("empty_permuted", "empty_strided", "expand", "eye", "fill", "fill_diagonal", "flip"),
        *("floor", "fmax", "fmin", "fmod", "frac", "fractional_max_pool2d"),
        *("fractional_max_pool3d", "full", "full_like", "gather", "hardshrink", "hardtanh"),
        *("heaviside", "im2col", "index", "index_copy", "index_fill", "index_put", "index_select"),
        *("isnan", "kthvalue", "leaky_relu", "lift", "lift_fresh", "lift_fresh_copy"),
        *("masked_fill", "masked_scatter", "masked_select", "max", "max_pool2d_with_indices"),
        *("max_pool3d", "max_pool3d_with_indices", "max_unpool2d", "max_unpool3d", "maximum"),
        *("median", "min", "minimum", "mode", "nan_to_num", "nanmedian", "native_channel_shuffle"),
        *("native_dropout", "neg", "_nested_tensor_from_mask", "new_empty", "new_empty_strided"),
        *("new_full", "new_ones", "new_zeros", "nextafter", "nonzero", "one_hot", "ones"),
        *("ones_like", "to_padded_tensor"),
        *("_pack_padded_sequence", "_pad_packed_sequence", "permute", "pixel_shuffle"),
        *("pixel_unshuffle", "put", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d"),
        *("relu", "repeat", "replication_pad1d", "replication_pad2d", "replication_pad3d"),
        *("_reshape_alias", "_reshape_copy", "resize", "roll", "rot90", "round", "scalar_tensor"),
        *("scatter", "select", "select_scatter", "set", "sgn", "sign", "slice", "slice_scatter"),
        *("sort", "split", "split_with_sizes", "split_with_sizes_copy", "squeeze", "stack", "take"),
        *("threshold", "_to_copy", "topk", "transpose", "tril", "triu", "trunc", "unbind"),
        *("unfold", "unsafe_chunk", "_unsafe_index", "_unsafe_masked_index", "unsafe_split"),
        *("unsafe_split_with_sizes", "_unsafe_view", "unsqueeze", "upsample_nearest1d"),
        *("upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d"),
        *("_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "view", "where", "zero"),
        *("zeros", "zeros_like"),
    ]
)

EXACT_ONNX = frozenset(
    [
        *("Abs", "ArgMax", "ArgMin", "Cast", "CastLike", "Ceil", "Clip", "Concat", "Constant"),
        *("ConstantOfShape", "DepthToSpace", "DequantizeLinear", "Dropout", "Expand", "EyeLike"),
        *("Flatten", "Floor", "Gather", "GatherElements", "GatherND", "GlobalMaxPool", "Identity"),
        *("If", "LeakyRelu", "Loop", "Max", "MaxPool", "Min", "Mod", "Neg", "OneHot", "Pad"),
        *("Range", "ReduceMax", "ReduceMin", "Relu", "Reshape", "Round", "Scan", "ScatterElements"),
        *("ScatterND", "Shape", "Sign", "Size", "Slice", "SpaceToDepth", "Split", "Squeeze"),
        *("Tile", "TopK", "Transpose", "Trilu", "Unsqueeze", "Where"),
    ]
)
