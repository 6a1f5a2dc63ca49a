#include "server/warm/catalog_version.h"

namespace remora::detail {

std::uint32_t catalog_version() noexcept { return 1; }
std::uint32_t catalog_oldest_reader() noexcept { return 1; }

}  // namespace remora::detail
