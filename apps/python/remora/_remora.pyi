from typing import Any

# The extension module that build_cffi.py makes: cffi has no types.
ffi: Any
lib: Any
