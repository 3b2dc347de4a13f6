"""Tables of this and of the neighbouring folder can be imported."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tables")]
