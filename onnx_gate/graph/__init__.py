"""One ONNX graph: opened with its weights left where they lie, walked, run, changed, cut.

- ``graph``: ``read_graph``, functions inlined and nodes in topological order; a ``Graph`` knows who
  makes and who reads a value, what depends on no input, and the graphs inside of a node.
- ``constants``: initializers as arrays, external data mapped from its file; ``move_out`` writes them
  to such a file; ``external_files`` and ``stored_bytes`` read none.
- ``walk``: every node of a model and every graph in it, attributes, constants by name, the opset,
  functions inlined.
- ``session``: a model in ONNX Runtime as it is written, without optimisations.
- ``run_node``, ``run_graph``: one node alone on any values, in ONNX Runtime or another engine; a
  graph node by node, values replaced on the way.
- ``edit``: nodes and models changed in a copy: an attribute, an operand, what stands in a node's
  place, which values are outputs, which are fed.
- ``extract``: a part as a model of its own, and the values that it takes.

Nodes are ONNX's own protos, which sessions, checkers and evaluators take; tensors are onnx-ir's.
"""
