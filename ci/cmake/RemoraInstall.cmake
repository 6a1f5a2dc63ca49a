# Install, export and package files: find_package(remora) and pkg-config remora.
