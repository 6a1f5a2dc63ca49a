"""1 GiB of numpy, there and back."""

import os

os.environ["REMORA_POOL_MIB"] = "1088"

import pytest  # noqa: E402
from conftest import create  # noqa: E402


def test_one_gibibyte(client):
    numpy = pytest.importorskip("numpy")
    size = 1 << 30
    region = create(client, "gibibyte", size)
    # One array, and parts to compare it with: a guest has memory for no second one.
    numbers = numpy.arange(size // 8, dtype=numpy.uint64)
    region.write(0, numbers)
    numbers.fill(0)
    region.read_into(numbers)
    part = 1 << 20
    for begin in range(0, numbers.size, part):
        expected = numpy.arange(begin, begin + part, dtype=numpy.uint64)
        assert numpy.array_equal(numbers[begin:begin + part], expected), begin
