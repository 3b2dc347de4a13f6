"""Settings shared by all tests."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings

sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile(
    "affinedp",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)
settings.load_profile("affinedp")

# In memory where there is such a place, with room: most tests need not wait for the disk, and what
# survives a power cut is tested on a disk of its own.
MEMORY = "/dev/shm"
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2**30:
    tempfile.tempdir = MEMORY
