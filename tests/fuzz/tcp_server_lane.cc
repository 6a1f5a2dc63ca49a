// The server's end of a lane and a peer that says anything: memory, answers and counts are held
// against a model that reads the same bytes one request after the other.

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <sys/mman.h>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "tcp_lanes.h"
#include "transport/tcp/lane_buffers.h"
#include "transport/tcp/served_session.h"
#include "transport/tcp/server_lane.h"
#include "transport/tcp/step_limits.h"

namespace remora::fuzz {
namespace {

namespace tcp = transport::tcp;
using tcp::wire::get;
using transport::Opcode;

constexpr std::size_t kPage = 4096;
constexpr std::size_t kArenaBytes = 16 * kPage;
constexpr std::size_t kMaxSaid = std::size_t{256} * 1024;
constexpr std::byte kCanary{0xc5};

/// Memory between two pages without access. Mapped once: every run begins with the same.
std::span<std::byte> arena() {
  static const std::span<std::byte> s_arena = [] {
    void* const all =
        ::mmap(nullptr, kArenaBytes + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(all != MAP_FAILED, "mmap");
    auto* const begin = static_cast<std::byte*>(all) + kPage;
    require(::mprotect(begin, kArenaBytes, PROT_READ | PROT_WRITE) == 0, "mprotect");
    return std::span{begin, kArenaBytes};
  }();
  return s_arena;
}

/// What is granted, in one place: an extent of the arena and its address in its region.
struct Extent {
  std::size_t grant;
  std::size_t at;  ///< in the arena
  std::size_t length;
  std::uint64_t address;
  Rights rights;
  bool cpu_atomics;
  std::uint32_t key = 0;
};

/// Two extents of one region, of which the second ends with the arena; one that may only be read;
/// one that may only be written, whose atomics are a device's. Between them lies memory without a
/// grant.
std::vector<Extent> extents() {
  return {{0, 512, 20000, 0, Rights::kAll, true},
          {0, kArenaBytes - 8192, 8192, 20000, Rights::kAll, true},
          {1, 24000, 4096, 0, Rights::kRead, true},
          {2, 30000, 3000, 0, Rights::kWrite | Rights::kAtomic, false}};
}

/// What the server's end has to make of the bytes, by the tables of tcp/wire.h.
class Model {
 public:
  Model(bool payload_crc, std::vector<Extent> extents, std::span<const std::byte> memory)
      : memory{memory.begin(), memory.end()},
        payload_crc_{payload_crc},
        extents_{std::move(extents)} {}

  /// Reads on, as far as the bytes go.
  void take(std::span<const std::byte> said) {
    while (!over && one(said)) {
    }
  }

  Bytes memory;
  Bytes answers;
  tcp::ServedCounts served;
  std::size_t notices = 0;
  bool over = false;     ///< nothing is served any more
  bool refused = false;  ///< since a request was refused: the peer is told

 private:
  struct Asked {
    std::uint8_t code;
    bool answered;
    std::uint32_t length, key, sequence, crc;
    std::uint64_t address, compare_or_add, swap;
  };
  static constexpr std::uint8_t kRead = 1, kWrite = 2, kSwap = 3, kAdd = 4, kZeroes = 5, kTell = 6;

  bool one(std::span<const std::byte> said) {
    if (write_left_ > 0 && !write_on(said)) return false;
    constexpr std::size_t kHeader = tcp::RequestHeader::kWireBytes;
    if (said.size() - at_ < kHeader) return false;
    const std::byte* const from = said.data() + at_;
    const Asked asked{.code = std::to_integer<std::uint8_t>(from[0]),
                      .answered = (from[1] & std::byte{1}) != std::byte{0},
                      .length = get<std::uint32_t>(from + 4),
                      .key = get<std::uint32_t>(from + 16),
                      .sequence = get<std::uint32_t>(from + 20),
                      .crc = get<std::uint32_t>(from + 40),
                      .address = get<std::uint64_t>(from + 8),
                      .compare_or_add = get<std::uint64_t>(from + 24),
                      .swap = get<std::uint64_t>(from + 32)};
    const bool write = asked.code == kWrite || asked.code == kZeroes;
    const bool form = crc32c({from, kHeader - 4}) == get<std::uint32_t>(from + kHeader - 4) &&
                      asked.code >= kRead && asked.code <= kTell && from[1] <= std::byte{1} &&
                      from[2] == std::byte{0} && from[3] == std::byte{0} &&
                      (asked.answered || write) && (asked.code != kTell || asked.length == 0);
    if (!form || (next_ && asked.sequence != *next_)) {
      over = true;
      return false;
    }
    if (asked.code == kTell) {
      ++notices;
      answer(asked, CompletionStatus::kSuccess, {});
    } else if (!serve(asked, said)) {
      return false;
    }
    at_ += kHeader;
    next_ = asked.sequence + 1;
    return true;
  }

  bool serve(const Asked& asked, std::span<const std::byte> said) {
    std::byte* place = nullptr;
    const CompletionStatus status = find(asked, place);
    if (status != CompletionStatus::kSuccess) {
      ++served.refused;
      return refuse(asked, status);
    }
    const std::size_t kind = asked.code == kZeroes ? 1U : asked.code - 1U;
    if (asked.code == kWrite) {
      const auto payload = said.subspan(at_ + tcp::RequestHeader::kWireBytes);
      if (payload_crc_) {
        if (payload.size() < asked.length) return false;
        if (crc32c(payload.first(asked.length)) != asked.crc) {
          ++served.corrupt;
          return refuse(asked, CompletionStatus::kRemoteOperationError);
        }
      }
      write_ = asked;
      write_place_ = place;
      write_left_ = asked.length;
    } else if (asked.code == kZeroes) {
      std::memset(place, 0, asked.length);
      if (asked.answered) answer(asked, CompletionStatus::kSuccess, {});
    } else {
      std::uint64_t old = 0;
      if (asked.code != kRead) std::memcpy(&old, place, sizeof old);
      answer(asked, CompletionStatus::kSuccess, {place, asked.length});
      const std::uint64_t sum = old + asked.compare_or_add;
      if (asked.code == kAdd) std::memcpy(place, &sum, sizeof sum);
      if (asked.code == kSwap && old == asked.compare_or_add)
        std::memcpy(place, &asked.swap, sizeof asked.swap);
    }
    ++served.operations[kind];
    if (kind < 2) served.bytes[kind] += asked.length;
    return true;
  }

  /// True: the write is whole.
  bool write_on(std::span<const std::byte> said) {
    const std::size_t part = std::min<std::size_t>(write_left_, said.size() - at_);
    std::memcpy(write_place_, said.data() + at_, part);
    write_place_ += part;
    write_left_ -= part;
    at_ += part;
    if (write_left_ > 0) return false;
    if (write_.answered) answer(write_, CompletionStatus::kSuccess, {});
    return true;
  }

  CompletionStatus find(const Asked& asked, std::byte*& place) {
    const bool atomic = asked.code == kSwap || asked.code == kAdd;
    if (atomic ? asked.length != 8 || asked.address % 8 != 0
               : asked.length == 0 || asked.length > tcp::kMaxTransferBytes)
      return CompletionStatus::kRemoteInvalidRequest;
    for (const Extent& extent : extents_) {
      if (extent.key != asked.key) continue;
      const Rights right = atomic                ? Rights::kAtomic
                           : asked.code == kRead ? Rights::kRead
                                                 : Rights::kWrite;
      if (asked.address < extent.address || asked.address >= extent.address + extent.length ||
          asked.length > extent.address + extent.length - asked.address ||
          !includes(extent.rights, right) || (atomic && !extent.cpu_atomics))
        break;
      place = memory.data() + extent.at + (asked.address - extent.address);
      return CompletionStatus::kSuccess;
    }
    return CompletionStatus::kRemoteAccessError;
  }

  bool refuse(const Asked& asked, CompletionStatus status) {
    answer(asked, status, {});
    over = refused = true;
    return false;
  }

  void answer(const Asked& asked, CompletionStatus status, std::span<const std::byte> payload) {
    std::array<std::byte, tcp::AnswerHeader::kWireBytes> header{};
    tcp::AnswerHeader{.status = status,
                      .opcode = static_cast<Opcode>(asked.code - 1),
                      .sequence = asked.sequence,
                      .length_bytes = static_cast<std::uint32_t>(payload.size()),
                      .payload_crc = payload_crc_ ? crc32c(payload) : 0}
        .to_wire(header);
    answers.insert(answers.end(), header.begin(), header.end());
    answers.insert(answers.end(), payload.begin(), payload.end());
  }

  bool payload_crc_;
  std::vector<Extent> extents_;
  std::size_t at_ = 0;  ///< of what was said, so much is read
  std::optional<std::uint32_t> next_;
  Asked write_{};
  std::byte* write_place_ = nullptr;
  std::uint32_t write_left_ = 0;
};

/// The lane with its session, the peer, and what the input makes them do.
class ServerRun {
 public:
  explicit ServerRun(std::uint8_t flags)
      : crc_{(flags & 1U) != 0},
        step_bytes_max_{(flags & 4U) != 0 ? tcp::kMaxLoneStepBytes : tcp::kMaxStepBytes},
        sockets_{(flags & 2U) != 0 ? 4096 : 0},
        extents_{extents()},
        session_{tcp::ServedSession::create().value()} {
    const std::span memory = arena();
    std::fill(memory.begin(), memory.end(), kCanary);
    for (const Extent& extent : extents_)
      for (std::size_t i = 0; i < extent.length; ++i)
        memory[extent.at + i] = static_cast<std::byte>((extent.at + i) % 197);
    grant(0, {0, 1});
    grant(1, {2});
    grant(2, {3});
    lane_ = std::make_shared<tcp::ServerLane>(std::move(sockets_.lane), session_, crc_);
    require(session_->add_lane(lane_).ok(), "a session takes a lane");
    model_ = std::make_unique<Model>(crc_, extents_, memory);
  }
  ~ServerRun() { session_->end(); }
  ServerRun(const ServerRun&) = delete;
  ServerRun& operator=(const ServerRun&) = delete;

  void act(Input& input) {
    switch (input.below(10)) {
      case 0:
      case 1:
      case 2:
      case 3: request(input); break;
      case 4: peer_.say(input.take_bytes(input.byte())); break;
      case 5: peer_.deliver(1 + input.take<std::uint16_t>()); break;
      case 6: peer_.deliver(1 + input.byte()); break;
      case 7: steps(1 + input.below(8)); break;
      case 8: peer_.hear(1 + input.take<std::uint16_t>()); break;
      default: rarely(input);
    }
  }
  [[nodiscard]] bool may_say_more() const {
    return peer_.said().size() < kMaxSaid && !peer_.hung_up();
  }

  /// Everything is delivered, served and heard: it is as the model says.
  void settle() {
    for (std::size_t idle = 0, rounds = 0; idle < 3 && rounds < 100000; ++rounds) {
      std::size_t moved = peer_.deliver(SIZE_MAX);
      steps(1);
      moved += peer_.hear(std::size_t{256} * 1024) + take_notices();
      idle = moved > 0 || lane_->moved() ? 0 : idle + 1;
    }
    check_canaries();
    if (revoked_) return check_revoked();
    model_->take(std::span{peer_.said()}.first(peer_.delivered()));
    const std::span memory = arena();
    require(std::equal(memory.begin(), memory.end(), model_->memory.begin()),
            "memory is as the requests leave it, and nothing else is touched");
    // What is not the protocol ends the lane at once, also for answers that have not left.
    const bool cut = model_->over && !model_->refused;
    require(peer_.heard().size() <= model_->answers.size() &&
                (cut || peer_.heard().size() == model_->answers.size()) &&
                std::equal(peer_.heard().begin(), peer_.heard().end(), model_->answers.begin()),
            "the answers are those to the requests, in order");
    require(
        served_.operations == model_->served.operations && served_.bytes == model_->served.bytes &&
            served_.refused == model_->served.refused && served_.corrupt == model_->served.corrupt,
        "each operation is counted once");
    require(notices_ == model_->notices, "each notice comes once");
    const tcp::ServedCounts told = session_->served();
    require(told.operations == served_.operations && told.bytes == served_.bytes,
            "a session tells what its lanes have served");
  }

 private:
  void grant(std::size_t number, std::initializer_list<std::size_t> parts) {
    std::vector<transport::MemoryStretch> stretches;
    for (const std::size_t part : parts)
      stretches.push_back({arena().data() + extents_[part].at, extents_[part].length});
    const Extent& first = extents_[*parts.begin()];
    grants_[number] =
        session_
            ->grant(
                {.extents = stretches, .rights = first.rights, .cpu_atomics = first.cpu_atomics})
            .value();
    std::size_t i = 0;
    for (const std::size_t part : parts) {
      const transport::WireExtent& wire = grants_[number].extents[i++];
      require(wire.remote_address == extents_[part].address, "addresses are those of the region");
      extents_[part].key = wire.remote_key;
    }
  }

  /// One request, mostly well formed; the input says how it is not.
  void request(Input& input) {
    const Extent& extent = extents_[input.below(4)];
    const std::uint8_t how = input.byte();
    const std::uint8_t code = input.byte();
    tcp::RequestHeader header;
    header.opcode = static_cast<Opcode>(code % 6);
    header.answered = !is_write(header.opcode) || (code & 0x80U) == 0;
    const bool atomic = is_atomic(header.opcode);
    std::uint64_t into = input.take<std::uint16_t>();
    if ((how & 1U) != 0) into = extent.length - 1 - into % 64;  // near the end
    if ((how & 2U) != 0) into = input.take<std::uint64_t>();
    if (atomic && (how & 4U) == 0) into &= ~std::uint64_t{7};
    header.address = extent.address + into;
    header.length_bytes = (how & 8U) != 0 ? input.take<std::uint32_t>() : input.byte() * 33U;
    if (atomic && (how & 16U) == 0) header.length_bytes = 8;
    if (header.opcode == Opcode::kNotify && (how & 16U) == 0) header.length_bytes = 0;
    header.key = extent.key;
    if ((how & 32U) != 0) header.key ^= input.take<std::uint32_t>();
    header.sequence = sequence_++;
    header.compare_or_add = input.byte();
    header.swap = input.byte();
    const bool write = header.opcode == Opcode::kWrite;
    Bytes payload(write ? std::min<std::size_t>(header.length_bytes, 70000) : 0);
    const std::byte seed{input.byte()};
    for (std::size_t i = 0; i < payload.size(); ++i)
      payload[i] = seed ^ static_cast<std::byte>(i % 251);
    if (write && crc_) header.payload_crc = crc32c(payload);
    std::array<std::byte, tcp::RequestHeader::kWireBytes> bytes{};
    header.to_wire(bytes);
    if ((how & 64U) != 0) {
      bytes[input.below(bytes.size())] ^= std::byte{input.byte()};
      if (input.flag()) tcp::wire::seal(std::span{bytes});
    }
    if ((how & 128U) != 0 && !payload.empty())
      payload[input.take<std::uint16_t>() % payload.size()] ^= std::byte{input.byte()};
    peer_.say(bytes);
    peer_.say(payload);
  }

  void rarely(Input& input) {
    switch (input.below(4)) {
      case 0: (void)take_notices(); break;
      case 1: {  // what is taken back
        const std::size_t number = input.below(3);
        if (!grants_[number].handle) break;
        grants_[number].handle.reset();
        revoked_ = true;
        for (const Extent& extent : extents_)
          if (extent.grant == number) {
            const auto bytes = arena().subspan(extent.at, extent.length);
            kept_.push_back({extent.at, {bytes.begin(), bytes.end()}});
          }
        break;
      }
      case 2: (void)peer_.hear(1); break;
      default: steps(1);
    }
  }

  void steps(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      session_->serve([&](const tcp::GrantTable& grants) {
        tcp::ServedCounts now;
        lane_->step(grants, buffers(), now, step_bytes_max_);
        served_ += now;
        return now;
      });
  }

  std::size_t take_notices() {
    std::array<transport::Notice, 16> found;
    const std::size_t count = session_->take_notices(found).first;
    notices_ += count;
    return count;
  }

  void check_canaries() const {
    const std::span<const std::byte> memory = arena();
    std::size_t at = 0;
    const auto untouched = [&](std::size_t end) {
      require(std::all_of(memory.begin() + static_cast<std::ptrdiff_t>(at),
                          memory.begin() + static_cast<std::ptrdiff_t>(end),
                          [](std::byte byte) { return byte == kCanary; }),
              "memory without a grant is not touched");
    };
    for (const std::size_t i : {0U, 2U, 3U, 1U}) {  // in the order of the arena
      untouched(extents_[i].at);
      at = extents_[i].at + extents_[i].length;
    }
    untouched(memory.size());
    const Extent& read_only = extents_[2];
    for (std::size_t i = 0; i < read_only.length; ++i)
      require(memory[read_only.at + i] == static_cast<std::byte>((read_only.at + i) % 197),
              "what may only be read is not written");
  }

  void check_revoked() const {
    for (const auto& [at, bytes] : kept_)
      require(
          std::equal(bytes.begin(), bytes.end(), arena().begin() + static_cast<std::ptrdiff_t>(at)),
          "what was taken back is not touched any more");
  }

  /// As in a server, lanes have the buffers of lanes before them. To make them for each input would
  /// take longer than most inputs.
  static tcp::LaneBuffers& buffers() {
    static tcp::LaneBuffers s_all;
    return s_all;
  }

  bool crc_;
  std::uint64_t step_bytes_max_;
  SocketPair sockets_;
  std::vector<Extent> extents_;
  std::shared_ptr<tcp::ServedSession> session_;
  std::array<transport::Grant, 3> grants_;
  std::shared_ptr<tcp::ServerLane> lane_;
  std::unique_ptr<Model> model_;
  Peer peer_{std::move(sockets_.ours)};
  std::uint32_t sequence_ = 0xfffffff0;
  tcp::ServedCounts served_;
  std::size_t notices_ = 0;
  bool revoked_ = false;
  std::vector<std::pair<std::size_t, Bytes>> kept_;
};

}  // namespace

void fuzz_server_lane(Input& input) {
  ServerRun run{input.byte()};
  while (!input.empty() && run.may_say_more()) run.act(input);
  run.settle();
}

}  // namespace remora::fuzz
