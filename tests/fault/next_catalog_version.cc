// The version of the catalog of remora_server_next: the program of a version to come, which the
// present one may follow.

#include "server/warm/catalog_version.h"

namespace remora::detail {

std::uint32_t catalog_version() noexcept { return 2; }
std::uint32_t catalog_oldest_reader() noexcept { return 1; }

}  // namespace remora::detail
