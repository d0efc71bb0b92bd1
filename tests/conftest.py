"""What all tests share: no windows, one thread, the book's extensions importable."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "Agg")
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

sys.path.append(str(Path(__file__).resolve().parent.parent / "_ext"))
