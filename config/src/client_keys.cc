// Keys for the clients that the server accepts, and for the proof of their identity.

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "hosts.h"
#include "key_builders.h"
#include "key_checks.h"
#include "key_tables.h"

namespace remora::config {
namespace {

using namespace key_builders;  // NOLINT(google-build-using-namespace): the words of the table
using namespace std::string_view_literals;  // NOLINT(google-build-using-namespace): literals only

// In the order of their enumerators.
constexpr std::array kAuthWords{"none"sv, "keys"sv};

constexpr Access kAuth{[](ServerConfig& c, At, const Value& v) {
                         c.auth = std::get<std::string>(v) == "keys" ? Auth::kKeys : Auth::kNone;
                       },
                       [](const ServerConfig& c, At) -> std::optional<Value> {
                         if (!c.auth) return std::nullopt;
                         return holding<std::string>(to_string(*c.auth));
                       }};

constexpr auto kClientList = [](auto& c, At) -> auto& { return c.clients; };
constexpr auto kClientName =
    text([](auto& c, std::size_t i) -> auto& { return c.clients[i].name; });
constexpr auto kClientKey =
    secret_key([](auto& c, std::size_t i) -> auto& { return c.clients[i].key; });
constexpr auto kClientKeyFile =
    optional_text([](auto& c, std::size_t i) -> auto& { return c.clients[i].key_file; });
constexpr auto kClientPreviousKey =
    secret_key([](auto& c, std::size_t i) -> auto& { return c.clients[i].previous_key; });
constexpr auto kClientPreviousKeyFile =
    optional_text([](auto& c, std::size_t i) -> auto& { return c.clients[i].previous_key_file; });
constexpr auto kClientCreate =
    boolean([](auto& c, std::size_t i) -> auto& { return c.clients[i].create; });
constexpr auto kClientAdmin =
    boolean([](auto& c, std::size_t i) -> auto& { return c.clients[i].admin; });
constexpr auto kClientQuota =
    optional_number([](auto& c, std::size_t i) -> auto& { return c.clients[i].quota_bytes; });

constexpr std::array kClientKeys{
    worded("auth", KeyType::kChoice, kAuthWords, kAuth,
           "How clients prove their identity. `keys`: each client by its key in `clients`, and the "
           "server to the client by the same key. `none` accepts every client that can connect, "
           "as an administrator of the server, and must be written unless `listen.address` is a "
           "loopback address."),

    list("clients", kClientList, 1, 4096, "Clients that `auth: keys` accepts."),
    required(free_text("clients[].name", "1 to 64 of `A-Z a-z 0-9 . _ -`, not `.` or `..`",
                       is_client_name, kClientName, "Unique. Any number of processes may use it.")),
    typed(secret(free_text("clients[].key", "64 hexadecimal digits, drawn at random", is_key_text,
                           kClientKey, "The client's key: `remora key generate` makes one."))),
    free_text("clients[].key_file", "a file, seen from this file's folder", is_file_name,
              kClientKeyFile,
              "A file with `key`, instead. Only its owner and group may read it, and only its "
              "owner may change it."),
    typed(secret(free_text("clients[].previous_key", "64 hexadecimal digits, drawn at random",
                           is_key_text, kClientPreviousKey,
                           "A key that is accepted too, while processes change to `key`."))),
    free_text("clients[].previous_key_file", "a file, seen from this file's folder", is_file_name,
              kClientPreviousKeyFile, "A file with `previous_key`, instead."),
    ranged("clients[].create", KeyType::kBoolean, 0, 0, kClientCreate,
           "The client may create regions. They belong to the client: only it and an `admin` may "
           "use them, unless it allows others."),
    ranged("clients[].admin", KeyType::kBoolean, 0, 0, kClientAdmin,
           "The client may create regions, and use, fence, resize and remove every region, "
           "within the region's `rights`. It may list and end sessions, and drain the server."),
    ranged("clients[].quota", KeyType::kSize, 4 * kKiB, 64 * kTiB, kClientQuota,
           "Limit of pool bytes of the regions that the client has created, each rounded up to "
           "4KiB (to 2MiB where the pool has huge pages). Without it only the pool bounds them."),
};

}  // namespace

std::span<const Key> client_keys() { return kClientKeys; }

}  // namespace remora::config
