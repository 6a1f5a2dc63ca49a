/// remora read, write, cas, add: a few bytes of a region or a volume.

#include <CLI/CLI.hpp>
#include <array>
#include <cctype>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/commands.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/opened_store.h"
#include "cli/output.h"
#include "cli/pipeline.h"

namespace remora::apps {
namespace {

struct AccessOptions {
  std::string uri;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  bool hex = false;
  std::optional<std::string> data;
  std::optional<std::uint64_t> length_given;
  std::uint64_t first = 0;   // expected, or delta
  std::uint64_t second = 0;  // desired
};

/// Refuses bytes outside of the region or volume before any byte is transferred.
std::optional<Failure> range_fault(const OpenedStore& store, std::string_view what,
                                   std::uint64_t offset, std::uint64_t length) {
  const std::uint64_t size = store.size_bytes();
  if (offset <= size && length <= size - offset) return std::nullopt;
  return Failure{ExitCode::kRefused, std::string{what} + ": offset " + std::to_string(offset) +
                                         " with length " + std::to_string(length) +
                                         " reaches beyond the " + std::to_string(size) +
                                         " bytes of " + store.name()};
}

std::string hex_of_bytes(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte value : bytes) {
    text.push_back(kDigits[std::to_integer<unsigned>(value) >> 4U]);
    text.push_back(kDigits[std::to_integer<unsigned>(value) & 15U]);
  }
  return text;
}

/// Sixteen bytes on each line: offset, hexadecimal, printable characters.
class HexDump {
 public:
  explicit HexDump(std::uint64_t offset) : offset_{offset} {}
  void add(std::span<const std::byte> bytes) {
    for (const std::byte value : bytes) {
      line_[filled_++] = value;
      if (filled_ == line_.size()) flush();
    }
  }
  void flush() {
    if (filled_ == 0) return;
    std::array<char, 24> place{};
    std::snprintf(place.data(), place.size(), "%08llx:",
                  static_cast<unsigned long long>(offset_));  // NOLINT(google-runtime-int)
    std::string text = place.data();
    std::string characters;
    for (std::size_t i = 0; i < line_.size(); ++i) {
      if (i % 2 == 0) text += ' ';
      text += i < filled_ ? hex_of_bytes({&line_[i], 1}) : "  ";
      if (i < filled_) {
        const char c = static_cast<char>(line_[i]);
        characters += c >= 0x20 && c < 0x7f ? c : '.';
      }
    }
    std::cout << text << "  " << characters << '\n';
    offset_ += filled_;
    filled_ = 0;
  }

 private:
  std::array<std::byte, 16> line_{};
  std::size_t filled_ = 0;
  std::uint64_t offset_;
};

Outcome read(const Globals& globals, const AccessOptions& options) {
  const auto opened = OpenedStore::open(globals, options.uri, Rights::kRead);
  if (!opened) return tl::make_unexpected(opened.error());
  const OpenedStore& store = **opened;
  if (auto fault = range_fault(store, "read", options.offset, options.length))
    return tl::make_unexpected(std::move(*fault));
  auto output = Output::open("-");
  if (!output) return fail(output.error(), "read");
  catch_interrupts();
  HexDump dump{options.offset};
  std::string digits;
  const auto consume = [&](std::span<const std::byte> bytes) -> Status {
    if (globals.json)
      digits += hex_of_bytes(bytes);
    else if (options.hex)
      dump.add(bytes);
    else
      return output->write(bytes);
    return ok_status();
  };
  const Transferred moved = download(store, options.offset, options.length, consume);
  if (!moved.status) return fail(moved.status.error(), "read " + options.uri);
  dump.flush();
  if (globals.json)
    print_json(Json{{"offset", options.offset}, {"length", options.length}, {"hex", digits}});
  return ExitCode::kOk;
}

Producer producer_of_text(std::string_view text) {
  const auto rest = std::make_shared<std::string_view>(text);
  return {[rest](std::span<std::byte> into) -> Result<std::size_t> {
            const std::size_t length = std::min(into.size(), rest->size());
            std::memcpy(into.data(), rest->data(), length);
            rest->remove_prefix(length);
            return length;
          },
          [] { return true; }};
}

/// Reads standard input, at most `length` bytes of it.
Producer producer_of_input(Input& input, std::uint64_t length) {
  const auto left = std::make_shared<std::uint64_t>(length);
  return {[&input, left](std::span<std::byte> into) -> Result<std::size_t> {
            if (*left == 0) return std::size_t{0};
            auto got = input.read(into.first(std::min<std::uint64_t>(into.size(), *left)));
            if (got) *left -= *got;
            return got;
          },
          [&input] { return input.ready(); }};
}

Outcome write(const Globals& globals, const AccessOptions& options) {
  if (options.data && options.length_given && *options.length_given > options.data->size())
    return fail(ExitCode::kUsage, "write: --length " + std::to_string(*options.length_given) +
                                      " is more than the " + std::to_string(options.data->size()) +
                                      " bytes of --data");
  const auto opened = OpenedStore::open(globals, options.uri, Rights::kWrite);
  if (!opened) return tl::make_unexpected(opened.error());
  const OpenedStore& store = **opened;
  auto input = Input::open("-");
  if (!options.data && !input) return fail(input.error(), "write");
  std::optional<std::uint64_t> known = options.length_given;
  if (!known && options.data) known = options.data->size();
  if (!known) known = input->size_bytes();
  if (auto fault = range_fault(store, "write", options.offset, known.value_or(0)))
    return tl::make_unexpected(std::move(*fault));
  catch_interrupts();
  const std::uint64_t room = store.size_bytes() - options.offset;
  const Producer producer =
      options.data ? producer_of_text(std::string_view{*options.data}.substr(0, *known))
                   : producer_of_input(*input, options.length_given.value_or(~std::uint64_t{0}));
  const Transferred moved = upload(store, options.offset, room, producer);
  const std::string written = "; " + std::to_string(moved.bytes) + " bytes were written";
  if (!moved.status) {
    Failure failure{moved.status.error(), "write " + options.uri};
    failure.text += written;
    return tl::make_unexpected(std::move(failure));
  }
  if (options.length_given && moved.bytes < *options.length_given)
    return fail(ExitCode::kUsage, "write: standard input ended before --length " +
                                      std::to_string(*options.length_given) + written);
  if (!options.data && !options.length_given && input->size_bytes()) {
    const std::string change = input->change_since_open(moved.bytes);
    const std::string text = "write: standard input: " + change;
    if (moved.bytes < *input->size_bytes()) return fail(ExitCode::kLocal, text + written);
    if (!change.empty()) std::cerr << "remora: warning: " << text << '\n';
  }
  if (globals.json) print_json(Json{{"offset", options.offset}, {"bytes", moved.bytes}});
  return ExitCode::kOk;
}

std::string hex_word(std::uint64_t value) {
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "0x%llx",
                static_cast<unsigned long long>(value));  // NOLINT(google-runtime-int)
  return text.data();
}

Outcome compare_swap(const Globals& globals, const AccessOptions& options) {
  const auto opened = OpenedStore::open(globals, options.uri, Rights::kAtomic);
  if (!opened) return tl::make_unexpected(opened.error());
  const auto old =
      (*opened)->compare_swap(ByteOffset{options.offset}, options.first, options.second);
  if (!old) return fail(old.error(), "cas " + options.uri);
  const bool swapped = *old == options.first;
  if (globals.json)
    print_json(Json{{"old", *old}, {"old_hex", hex_word(*old)}, {"swapped", swapped}});
  else
    std::cout << *old << '\n';
  return swapped ? ExitCode::kOk : ExitCode::kNotSwapped;
}

Outcome fetch_add(const Globals& globals, const AccessOptions& options) {
  const auto opened = OpenedStore::open(globals, options.uri, Rights::kAtomic);
  if (!opened) return tl::make_unexpected(opened.error());
  const auto old = (*opened)->fetch_add(ByteOffset{options.offset}, options.first);
  if (!old) return fail(old.error(), "add " + options.uri);
  if (globals.json)
    print_json(Json{{"old", *old}, {"old_hex", hex_word(*old)}});
  else
    std::cout << *old << '\n';
  return ExitCode::kOk;
}

void add_offset(CLI::App* command, AccessOptions& options) {
  add_size(command, "--offset", options.offset, "Byte offset in the region or volume")->required();
}

void add_read_and_write(Commands& commands) {
  const auto options = std::make_shared<AccessOptions>();
  CLI::App* command = commands.add("read", "Print bytes of a region or volume");
  add_store_uri(command, options->uri);
  add_offset(command, *options);
  add_size(command, "--length", options->length, "How many bytes")->required();
  command->add_flag("--hex", options->hex, "Print a hexadecimal dump instead of raw bytes");
  Commands::on_run(command, [&commands, options] { return read(commands.globals(), *options); });

  const auto data = std::make_shared<std::string>();
  command = commands.add("write",
                         "Write bytes from --data or from standard input into a region or volume");
  add_store_uri(command, options->uri);
  add_offset(command, *options);
  CLI::Option* const text =
      command->add_option("--data", *data, "The bytes to write, as they stand")->type_name("TEXT");
  CLI::Option* const length =
      add_size(command, "--length", options->length,
               "Write exactly so many bytes (all of --data; standard input to its end)");
  Commands::on_run(command, [&commands, options, data, text, length] {
    if (text->count() > 0) options->data = *data;
    if (length->count() > 0) options->length_given = options->length;
    return write(commands.globals(), *options);
  });
}

}  // namespace

void add_access_commands(Commands& commands) {
  add_read_and_write(commands);

  const auto options = std::make_shared<AccessOptions>();
  CLI::App* command = commands.add(
      "cas", "Compare and swap 8 bytes; prints the old value, exits 1 when nothing was swapped");
  add_store_uri(command, options->uri);
  add_offset(command, *options);
  add_word(command, "EXPECTED", options->first, "Swap only when this stands there")->required();
  add_word(command, "DESIRED", options->second, "The value to put there")->required();
  Commands::on_run(command,
                   [&commands, options] { return compare_swap(commands.globals(), *options); });

  command = commands.add("add", "Add to 8 bytes, wrapping at 2^64; prints the old value");
  add_store_uri(command, options->uri);
  add_offset(command, *options);
  add_word(command, "DELTA", options->first, "What to add; may be negative")->required();
  Commands::on_run(command,
                   [&commands, options] { return fetch_add(commands.globals(), *options); });
}

}  // namespace remora::apps
