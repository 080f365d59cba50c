"""One table of operations for every backend.

`case.py` says what a case is, a module for each family of operations has the cases (`rows`,
`linear`, `attention`, `experts`, `recurrent`: as in `ingot.graph.ops`), `table.py` has them all.
The reference (`test_reference.py`), the CPU on every instruction set (`test_cpu.py`) and the GPU
(`tests/gpu/test_gpu_ops.py`) run the same cases against the reference in float64; and
`PYTHONPATH=tests python -m ops` times them.
"""
