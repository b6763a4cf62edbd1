"""OpenMP threads wait passively, unless a person has set otherwise, and before torch is there."""

import os
import subprocess
import sys

import pytest

NAMES = ("OMP_WAIT_POLICY", "KMP_BLOCKTIME", "GOMP_SPINCOUNT")
PROGRAM = f"""
import sys, os, hornbook
assert "torch" not in sys.modules
print([os.environ.get(name) for name in {NAMES}])
"""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ["passive", "0", None]),
        ({"OMP_WAIT_POLICY": "active"}, ["active", None, None]),
        ({"GOMP_SPINCOUNT": "7"}, [None, None, "7"]),
    ],
)
def test_threads_wait_passively_unless_set_otherwise(given, expected):
    others = {name: value for name, value in os.environ.items() if name not in NAMES}
    found = subprocess.run([sys.executable, "-c", PROGRAM], env=others | given, capture_output=True, text=True)
    assert found.stdout.strip() == str(expected), found.stderr
