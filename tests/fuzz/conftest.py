"""How long the fuzzer runs: ``make test`` takes a few examples of each kind, ``make fuzz`` many."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "fuzz",
    deadline=None,
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", 20_000)),
    derandomize=False,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
