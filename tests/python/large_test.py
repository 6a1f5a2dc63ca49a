"""1 GiB of numpy, there and back."""

import os

os.environ["REMORA_POOL_MIB"] = "1088"

import pytest  # noqa: E402
from conftest import create  # noqa: E402


def test_one_gibibyte(client):
    numpy = pytest.importorskip("numpy")
    size = 1 << 30
    region = create(client, "gibibyte", size)
    made = numpy.arange(size // 8, dtype=numpy.uint64)
    region.write(0, made)
    back = numpy.empty_like(made)
    region.read_into(back)
    assert numpy.array_equal(made, back)
