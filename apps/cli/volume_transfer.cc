#include "cli/volume_transfer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include <remora/config/printable.h>
#include <remora/volume/volume.h>

#include "cli/cluster_uri.h"
#include "cli/human.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"

namespace remora::apps {
namespace {

using Clock = std::chrono::steady_clock;

struct OpenedVolume {
  Engine engine;
  volume::Volume volume;
};

/// The option that has no use with a volume; empty: none.
std::string unfit_option(const TransferOptions& options) {
  for (const auto& [given, name] : {std::pair{options.resume, "--resume"},
                                    {options.verify, "--verify"},
                                    {options.streams.has_value(), "--streams"},
                                    {options.dense, "--dense"}})
    if (given) return std::string{name} + " is for regions: a volume has no such option";
  return {};
}

tl::expected<OpenedVolume, Failure> open_volume(const Globals& globals,
                                                const TransferOptions& options, Rights rights,
                                                const std::string& what) {
  if (const std::string text = unfit_option(options); !text.empty())
    return fail(ExitCode::kUsage, what + ": " + text);
  if (options.file.empty()) return fail(ExitCode::kUsage, what + ": the name of FILE is empty");
  const auto named = open_cluster(globals, options.uri, true);
  if (!named) return tl::make_unexpected(named.error());
  auto engine = open_engine(globals);
  if (!engine) return fail(engine.error(), what);
  auto volume = volume::Volume::open(*engine, named->cluster, named->volume,
                                     {.rights = rights, .operation_deadline = globals.timeout});
  if (!volume) return fail_in_cluster(volume.error(), what);
  if (options.offset > volume->size_bytes())
    return fail(ExitCode::kRefused, what + ": offset " + std::to_string(options.offset) +
                                        " is beyond the " + std::to_string(volume->size_bytes()) +
                                        " bytes of volume " + named->volume);
  return OpenedVolume{std::move(*engine), std::move(*volume)};
}

/// Operations of one direction, which end in any order and are handed on in the order of the bytes.
class Pieces {
 public:
  static Result<Pieces> create(const OpenedVolume& opened) {
    auto slots = opened.engine.allocate_slots(kVolumeDepth, kVolumePieceBytes);
    if (!slots) return slots.error();
    auto queue = opened.volume.queue({.depth = kVolumeDepth});
    if (!queue) return queue.error();
    Pieces pieces{std::move(*slots), std::move(*queue)};
    for (Piece& piece : pieces.pieces_) piece.slot = pieces.slots_.take();
    return pieces;
  }

  [[nodiscard]] bool full() const noexcept { return next_ - first_ == kVolumeDepth; }
  [[nodiscard]] bool idle() const noexcept { return next_ == first_; }
  /// The memory of the next piece; only when !full().
  [[nodiscard]] std::span<std::byte> memory() noexcept { return piece(next_).slot.bytes(); }
  Status write(std::uint64_t to, std::size_t length_bytes) {
    const bool taken =
        queue_.write(ByteOffset{to}, Source{piece(next_).slot}.part(0, length_bytes), next_);
    return begin(taken, length_bytes);
  }
  Status read(std::uint64_t from, std::size_t length_bytes) {
    const bool taken =
        queue_.read(ByteOffset{from}, Target{piece(next_).slot}.part(0, length_bytes), next_);
    return begin(taken, length_bytes);
  }
  /// Blocks until the first piece has ended; its bytes, until the next call.
  Result<std::span<const std::byte>> take() {
    Piece& oldest = piece(first_);
    while (!oldest.done)
      for (const volume::VolumeCompletion& completion : queue_.wait(1)) {
        if (!completion.ok()) return completion.error();
        piece(completion.tag()).done = true;
      }
    oldest.done = false;
    ++first_;
    return std::span<const std::byte>{oldest.slot.bytes().first(oldest.length_bytes)};
  }

 private:
  struct Piece {
    Slot slot;
    std::size_t length_bytes = 0;
    bool done = false;
  };

  Pieces(SlotPool slots, volume::VolumeQueue queue)
      : slots_{std::move(slots)}, queue_{std::move(queue)} {}
  [[nodiscard]] Piece& piece(std::uint64_t number) noexcept {
    return pieces_[number % kVolumeDepth];
  }
  Status begin(bool taken, std::size_t length_bytes) {
    if (!taken) return Error{Code::kWouldBlock, "queue of a volume"};
    piece(next_).length_bytes = length_bytes;
    ++next_;
    return queue_.submit();
  }

  SlotPool slots_;
  std::array<Piece, kVolumeDepth> pieces_{};
  volume::VolumeQueue queue_;  // its operations use the slots: destroyed first
  std::uint64_t first_ = 0;
  std::uint64_t next_ = 0;
};

/// Fills `into` from the input; fewer bytes at its end.
Result<std::size_t> fill_piece(Input& input, std::span<std::byte> into) {
  std::size_t length = 0;
  while (length < into.size()) {
    const auto count = input.read(into.subspan(length));
    if (!count) return count.error();
    if (*count == 0) break;
    length += *count;
  }
  return length;
}

void report_volume(std::ostream& out, const Globals& globals, const TransferOptions& options,
                   std::string_view verb, std::uint64_t bytes, double seconds,
                   const std::optional<Checksum>& sum) {
  if (globals.json) {
    Json json{{"bytes", bytes}, {"seconds", seconds}};
    if (sum) json[std::string{to_string(options.checksum)}] = sum->digest();
    print_json(json);
    return;
  }
  out << verb << ' ' << bytes << " bytes in " << seconds << " s";
  if (seconds > 0) out << " (" << human_rate(static_cast<double>(bytes) / seconds) << ")";
  out << '\n';
  if (sum) out << to_string(options.checksum) << ' ' << sum->digest() << '\n';
}

Result<std::optional<Checksum>> begin_checksum(ChecksumKind kind) {
  if (kind == ChecksumKind::kNone) return std::optional<Checksum>{};
  auto sum = Checksum::make(kind);
  if (!sum) return sum.error();
  return std::optional<Checksum>{std::move(*sum)};
}

double seconds_since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

}  // namespace

Outcome put_volume(const Globals& globals, const TransferOptions& options) {
  const std::string what = "put " + options.file;
  auto opened = open_volume(globals, options, Rights::kReadWrite, what);
  if (!opened) return tl::make_unexpected(opened.error());
  auto input = Input::open(options.file);
  if (!input) return fail(input.error(), what);
  const std::uint64_t room = opened->volume.size_bytes() - options.offset;
  const std::string larger = what + ": there is more than the " + std::to_string(room) +
                             " bytes of the volume from offset " + std::to_string(options.offset);
  if (input->size_bytes() && *input->size_bytes() > room) return fail(ExitCode::kRefused, larger);
  auto sum = begin_checksum(options.checksum);
  if (!sum) return fail(sum.error(), what);
  auto pieces = Pieces::create(*opened);
  if (!pieces) return fail(pieces.error(), what);
  catch_interrupts();
  Progress progress{config::printable("put " + input->name()), input->size_bytes()};
  const auto began = Clock::now();
  std::uint64_t bytes = 0;
  for (bool at_end = false; !at_end || !pieces->idle();) {
    if (at_end || pieces->full()) {
      if (const auto done = pieces->take(); !done) return fail(done.error(), what);
      continue;
    }
    const auto memory = pieces->memory();
    const auto count = fill_piece(*input, memory);
    if (!count) return fail(count.error(), what);
    at_end = *count < memory.size();
    if (*count == 0) continue;
    if (*count > room - bytes)
      return fail(ExitCode::kRefused, larger + "; " + std::to_string(bytes) + " were written");
    if (*sum) (*sum)->update(memory.first(*count));
    if (const Status begun = pieces->write(options.offset + bytes, *count); !begun)
      return fail(begun.error(), what);
    bytes += *count;
    progress.update(bytes);
  }
  progress.finish();
  if (const std::string change = input->change_since_open(bytes); !change.empty()) {
    const std::string text = config::printable(what + ": " + change);
    if (bytes < *input->size_bytes())
      return fail(ExitCode::kLocal, text + "; " + std::to_string(bytes) + " bytes were written");
    std::cerr << "remora: warning: " << text << '\n';
  }
  report_volume(std::cout, globals, options, "put", bytes, seconds_since(began), *sum);
  return ExitCode::kOk;
}

Outcome get_volume(const Globals& globals, const TransferOptions& options) {
  const std::string what = "get " + options.file;
  auto opened = open_volume(globals, options, Rights::kRead, what);
  if (!opened) return tl::make_unexpected(opened.error());
  const std::uint64_t room = opened->volume.size_bytes() - options.offset;
  const std::uint64_t length = options.length.value_or(room);
  if (length > room)
    return fail(ExitCode::kRefused, what + ": length " + std::to_string(length) +
                                        ", and there are " + std::to_string(room) +
                                        " bytes from offset " + std::to_string(options.offset));
  if (globals.json && options.file == "-")
    return fail(ExitCode::kUsage,
                what + ": --json and the bytes cannot both be on standard output");
  auto output = Output::open(options.file);
  if (!output) return fail(output.error(), what);
  auto sum = begin_checksum(options.checksum);
  if (!sum) return fail(sum.error(), what);
  auto pieces = Pieces::create(*opened);
  if (!pieces) return fail(pieces.error(), what);
  catch_interrupts();
  Progress progress{config::printable("get " + output->name()), length};
  const auto began = Clock::now();
  std::uint64_t asked = 0;
  for (std::uint64_t bytes = 0; bytes < length;) {
    if (asked < length && !pieces->full()) {
      const auto count = std::min<std::uint64_t>(kVolumePieceBytes, length - asked);
      if (const Status begun = pieces->read(options.offset + asked, count); !begun)
        return fail(begun.error(), what);
      asked += count;
      continue;
    }
    const auto piece = pieces->take();
    if (!piece) return fail(piece.error(), what);
    if (*sum) (*sum)->update(*piece);
    if (const Status written = output->write(*piece); !written) return fail(written.error(), what);
    bytes += piece->size();
    progress.update(bytes);
  }
  if (const Status done = output->commit(); !done) return fail(done.error(), what);
  progress.finish();
  report_volume(output->is_stdout() ? std::cerr : std::cout, globals, options, "got", length,
                seconds_since(began), *sum);
  return ExitCode::kOk;
}

}  // namespace remora::apps
