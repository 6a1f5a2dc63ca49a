#include "mapping_kind.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <string_view>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <remora/standard_descriptors.h>

namespace remora::verbs::detail {
namespace {

// struct procmap_query of linux/fs.h, which may be newer than the headers of the build.
struct ProcmapQuery {
  std::uint64_t size;
  std::uint64_t query_flags;
  std::uint64_t query_addr;
  std::uint64_t vma_start;
  std::uint64_t vma_end;
  std::uint64_t vma_flags;
  std::uint64_t vma_page_size;
  std::uint64_t vma_offset;
  std::uint64_t inode;
  std::uint32_t dev_major;
  std::uint32_t dev_minor;
  std::uint32_t vma_name_size;
  std::uint32_t build_id_size;
  std::uint64_t vma_name_addr;
  std::uint64_t build_id_addr;
};
static_assert(sizeof(ProcmapQuery) == 104);
constexpr std::uint64_t kProcmapQuery = _IOWR('f', 17, ProcmapQuery);
constexpr std::uint64_t kVmaShared = 0x08;

/// One line of /proc/self/maps: "begin-end perms offset device inode  path".
struct MapsLine {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool private_anonymous = false;
};

bool parse_line(std::string_view line, MapsLine& parsed) noexcept {
  const char* const last = line.data() + line.size();
  const auto [dash, bad_begin] = std::from_chars(line.data(), last, parsed.begin, 16);
  if (bad_begin != std::errc{} || dash == last || *dash != '-') return false;
  const auto [space, bad_end] = std::from_chars(dash + 1, last, parsed.end, 16);
  if (bad_end != std::errc{} || last - space < 6) return false;
  const bool shared = space[4] != 'p';
  const char* at = space + 6;
  for (int field = 0; field < 2; ++field) {  // skips offset and device
    at = static_cast<const char*>(std::memchr(at, ' ', static_cast<std::size_t>(last - at)));
    if (at == nullptr) return false;
    ++at;
  }
  std::uint64_t inode = 1;
  if (std::from_chars(at, last, inode).ec != std::errc{}) return false;
  parsed.private_anonymous = !shared && inode == 0;
  return true;
}

}  // namespace

bool is_private_anonymous_by_text(std::uintptr_t begin, std::uintptr_t end, std::uintptr_t* from,
                                  std::uintptr_t* to) noexcept {
  const int maps = remora::detail::above_standard(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  if (maps < 0) return false;
  std::array<char, 8192> buffer;
  std::size_t filled = 0;
  bool all = false;
  bool more = true;
  while (more) {
    const ssize_t length = ::read(maps, buffer.data() + filled, buffer.size() - filled);
    if (length <= 0) break;
    filled += static_cast<std::size_t>(length);
    std::string_view rest{buffer.data(), filled};
    for (std::size_t newline = rest.find('\n'); more && newline != std::string_view::npos;
         newline = rest.find('\n')) {
      MapsLine line;
      more = parse_line(rest.substr(0, newline), line);
      rest.remove_prefix(newline + 1);
      if (!more || line.end <= begin) continue;
      more = line.begin <= begin && line.private_anonymous;
      if (from != nullptr) {
        *from = std::max(*from, line.begin);
        from = nullptr;
      }
      begin = line.end;
      all = more && begin >= end;
      if (all && to != nullptr) *to = std::min(*to, line.end);
      if (all) more = false;
    }
    filled = rest.size();
    std::memmove(buffer.data(), rest.data(), filled);
  }
  ::close(maps);
  return all;
}

bool is_private_anonymous(int maps, std::uintptr_t begin, std::uintptr_t end, std::uintptr_t* from,
                          std::uintptr_t* to) noexcept {
  while (begin < end) {
    ProcmapQuery query{};
    query.size = sizeof(query);
    query.query_addr = begin;
    if (::syscall(SYS_ioctl, maps, kProcmapQuery, &query) != 0)
      return errno == ENOTTY && is_private_anonymous_by_text(begin, end, from, to);
    if (query.inode != 0 || (query.vma_flags & kVmaShared) != 0 || query.vma_end <= begin)
      return false;
    if (from != nullptr) {
      *from = std::max<std::uintptr_t>(*from, query.vma_start);
      from = nullptr;
    }
    begin = query.vma_end;
  }
  if (to != nullptr) *to = std::min(*to, begin);
  return true;
}

}  // namespace remora::verbs::detail
