// Keys for the pool, and for the regions of the file.

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hosts.h"
#include "key_builders.h"
#include "key_checks.h"
#include "key_tables.h"

namespace remora::config {
namespace {

using namespace key_builders;  // NOLINT(google-build-using-namespace): the words of the table
using namespace std::string_view_literals;  // NOLINT(google-build-using-namespace): literals only

// In the order of their enumerators.
constexpr std::array kHugePagesWords{"never"sv, "try"sv, "require"sv, "1GiB"sv};
constexpr std::array kRightWords{"read"sv, "write"sv, "atomic"sv};
constexpr std::array kAccessWords{"read"sv, "write"sv, "atomic"sv, "admin"sv};

bool has_word(const std::vector<std::string>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The rights that a region and an entry of its `access` have in common.
template <typename Rights>
void set_rights(Rights& to, const std::vector<std::string>& words) {
  to.read = has_word(words, "read");
  to.write = has_word(words, "write");
  to.atomic = has_word(words, "atomic");
}

template <typename Rights>
std::vector<std::string> words_of(const Rights& rights) {
  std::vector<std::string> words;
  if (rights.read) words.emplace_back("read");
  if (rights.write) words.emplace_back("write");
  if (rights.atomic) words.emplace_back("atomic");
  return words;
}

constexpr Access kRights{[](ServerConfig& c, At r, const Value& v) {
                           set_rights(c.regions[r].rights, std::get<std::vector<std::string>>(v));
                         },
                         [](const ServerConfig& c, At r) -> std::optional<Value> {
                           return holding<std::vector<std::string>>(words_of(c.regions[r].rights));
                         }};

constexpr Access kAccessRights{[](ServerConfig& c, At at, const Value& v) {
                                 const auto& words = std::get<std::vector<std::string>>(v);
                                 RegionAccess& access = c.regions[at.item].access[at.inner];
                                 set_rights(access, words);
                                 access.admin = has_word(words, "admin");
                               },
                               [](const ServerConfig& c, At at) -> std::optional<Value> {
                                 const RegionAccess& access = c.regions[at.item].access[at.inner];
                                 std::vector<std::string> words = words_of(access);
                                 if (access.admin) words.emplace_back("admin");
                                 return holding<std::vector<std::string>>(std::move(words));
                               }};

constexpr auto kPoolSize = number([](auto& c, std::size_t) -> auto& { return c.pool.size_bytes; });
constexpr auto kPoolPiece =
    number([](auto& c, std::size_t) -> auto& { return c.pool.piece_bytes; });
constexpr auto kPoolHugePages =
    choice<HugePages>([](auto& c, std::size_t) -> auto& { return c.pool.huge_pages; });
constexpr auto kPoolPopulate =
    boolean([](auto& c, std::size_t) -> auto& { return c.pool.populate; });
constexpr auto kPoolCoreDump =
    boolean([](auto& c, std::size_t) -> auto& { return c.pool.core_dump; });
constexpr auto kPoolWarmRestart =
    boolean([](auto& c, std::size_t) -> auto& { return c.pool.warm_restart; });
constexpr auto kRegionName =
    text([](auto& c, std::size_t r) -> auto& { return c.regions[r].name; });
constexpr auto kRegionSize =
    number([](auto& c, std::size_t r) -> auto& { return c.regions[r].size_bytes; });
constexpr auto kRegionBlock =
    number([](auto& c, std::size_t r) -> auto& { return c.regions[r].block_bytes; });
constexpr auto kRegionAtomics =
    text([](auto& c, std::size_t r) -> auto& { return c.regions[r].atomics; });
constexpr auto kRegionShm =
    boolean([](auto& c, std::size_t r) -> auto& { return c.regions[r].shm; });
constexpr auto kRegionList = [](auto& c, At) -> auto& { return c.regions; };
constexpr auto kAccessList = [](auto& c, At at) -> auto& { return c.regions[at.item].access; };
constexpr auto kAccessClient =
    text([](auto& c, At at) -> auto& { return c.regions[at.item].access[at.inner].client; });

constexpr std::array kMemoryKeys{
    group("pool", KeyType::kMap, "The memory that the server offers."),
    required(ranged("pool.size", KeyType::kSize, 4 * kKiB, 64 * kTiB, kPoolSize,
                    "Budget of all regions together, a multiple of 4KiB (of 2MiB with "
                    "`huge_pages: require`, of 1GiB with `huge_pages: 1GiB`).")),
    ranged("pool.piece", KeyType::kSize, 4 * kKiB, kGiB, kPoolPiece,
           "Largest registration of memory, a multiple of 4KiB (of 2MiB with `huge_pages: "
           "require`, of 1GiB with `huge_pages: 1GiB`). The pool has at most 65536 pieces."),
    worded("pool.huge_pages", KeyType::kChoice, kHugePagesWords, kPoolHugePages,
           "2MiB pages: `try` takes ordinary pages where no huge page is left, `require` does not "
           "start. Where the pool has huge pages, each region takes whole ones. `1GiB`: pages of "
           "that size, or no start; regions take steps of 2MiB, and those with `shm` take their "
           "memory a second time."),
    ranged("pool.populate", KeyType::kBoolean, 0, 0, kPoolPopulate,
           "Touch every page at start, so that a machine without enough memory fails then."),
    ranged("pool.core_dump", KeyType::kBoolean, 0, 0, kPoolCoreDump,
           "Core dumps of the server contain the pool and the regions with `shm`: readable data of "
           "clients, and as large."),
    ranged("pool.warm_restart", KeyType::kBoolean, 0, 0, kPoolWarmRestart,
           "The memory outlives the process: the next one takes it over from the service manager "
           "(`FileDescriptorStoreMax=`) or from the supervisor of `--warm-fd`, and sessions go on. "
           "The server does not start without either."),

    list("regions", kRegionList, 0, 65536, "Regions that exist from the start."),
    required(free_text("regions[].name", "1 to 64 of `A-Z a-z 0-9 . _ -`, not `.` or `..`",
                       is_region_name, kRegionName, "Unique within the server.")),
    required(ranged("regions[].size", KeyType::kSize, 64, 64 * kTiB, kRegionSize,
                    "A multiple of `block`. A region takes whole pages of 4KiB of the pool.")),
    ranged("regions[].block", KeyType::kSize, 64, 16 * kMiB, kRegionBlock,
           "Unit of addressing, a power of two."),
    worded("regions[].rights", KeyType::kChoices, kRightWords, kRights,
           "The operations that clients may use; `atomic` is compare-and-swap and fetch-and-add."),
    free_text("regions[].atomics", "`auto`, `none`, `cpu` or the name of an RDMA device",
              is_device_name, kRegionAtomics,
              "The agent of atomics: `auto` is `cpu` with `shm`, else the RDMA device if there is "
              "one, else `cpu`. Clients on another path get an error, not lost updates."),
    ranged(
        "regions[].shm", KeyType::kBoolean, 0, 0, kRegionShm,
        "Clients of the same user, or root, on this host may map the region. A mapping cannot be "
        "taken back."),

    list("regions[].access", kAccessList, 1, kAccessMax,
         "With `auth: keys`: the rights of each client. Without it every client has the region's "
         "`rights`. A client with `clients[].admin` needs no entry: it has all `rights`."),
    required(free_text("regions[].access[].client", "the name of one of `clients`, or `*`",
                       is_access_client, kAccessClient, "`*` is every client.")),
    required(
        worded("regions[].access[].rights", KeyType::kChoices, kAccessWords, kAccessRights,
               "`admin` may remove, resize and fence the region; alone it allows neither reading "
               "nor writing. `rights` of the region bound the others.")),
};

}  // namespace

std::span<const Key> memory_keys() { return kMemoryKeys; }

}  // namespace remora::config
