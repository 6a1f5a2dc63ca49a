// The client's end of a lane and a server that says anything: each request is told of once and in
// order, none succeeds without its answer, and no buffer is touched but by its own answer and never
// after it was told of.

#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "tcp_lanes.h"
#include "transport/tcp/lane.h"

namespace remora::fuzz {
namespace {

namespace tcp = transport::tcp;
using tcp::wire::get;
using transport::Opcode;

constexpr std::uint32_t kDepth = 16;
constexpr std::size_t kMaxRequests = 200;
constexpr std::size_t kGuardBytes = 32;
constexpr std::size_t kHeader = tcp::RequestHeader::kWireBytes;
constexpr std::size_t kAnswer = tcp::AnswerHeader::kWireBytes;
constexpr std::byte kCanary{0xc5};

/// A request that was posted, with memory of its own.
struct Posted {
  transport::WorkRequest request;
  transport::Notice notice;  ///< of kNotify
  Bytes memory;              ///< the buffer, and canaries behind it
  Bytes before;              ///< as it was when posted; from when it was told of on, as it was then
  bool told = false;
  CompletionStatus status = CompletionStatus::kSuccess;
};

/// A request as the server's side has received it.
struct Received {
  bool answered;
  Opcode opcode;
  std::uint32_t length;
};

class ClientRun {
 public:
  explicit ClientRun(std::uint8_t flags)
      : crc_{(flags & 1U) != 0},
        sockets_{(flags & 2U) != 0 ? 4096 : 0},
        lane_{tcp::TcpLane::create(std::move(sockets_.lane), kDepth, crc_).value()} {}
  ~ClientRun() { lane_->close(); }
  ClientRun(const ClientRun&) = delete;
  ClientRun& operator=(const ClientRun&) = delete;

  void act(Input& input) {
    switch (input.below(10)) {
      case 0:
      case 1: post(input); break;
      case 2: poll(); break;
      case 3:
      case 4: answer(input); break;
      case 5:
        clean_ = false;
        peer_.say(input.take_bytes(input.byte()));
        break;
      case 6: deliver(1 + input.take<std::uint16_t>()); break;
      case 7: deliver(1 + input.byte()); break;
      case 8: hear(1 + input.take<std::uint16_t>()); break;
      default:
        if (input.below(16) != 0) break;
        lane_->move_to_error();
        clean_ = false;
    }
  }

  void settle() {
    for (std::size_t idle = 0, rounds = 0; idle < 3 && rounds < 100000; ++rounds) {
      const std::size_t told = told_;
      std::size_t moved = hear(std::size_t{256} * 1024);
      moved += deliver(SIZE_MAX);
      poll();
      idle = moved > 0 || told_ != told ? 0 : idle + 1;
    }
    const std::size_t successes = successes_expected();
    if (clean_ && peer_.all_delivered())
      require(good_ == successes, "what was answered well has succeeded");
    peer_.hang_up();
    for (std::size_t i = 0; i < 2 * kMaxRequests && told_ < posted_.size(); ++i) poll();
    require(told_ == posted_.size(), "each request is told of");
    require(good_ <= successes, "no request succeeds without its answer");
    for (const auto& each : posted_) check_memory(*each);
  }

 private:
  void post(Input& input) {
    const std::size_t room =
        std::min<std::size_t>(kDepth - (posted_.size() - told_), kMaxRequests - posted_.size());
    const std::size_t count = std::min<std::size_t>(1 + input.below(8), room);
    if (count == 0) return;
    std::vector<const transport::WorkRequest*> chain;
    std::vector<std::unique_ptr<Posted>> made;
    for (std::size_t i = 0; i < count; ++i) {
      made.push_back(make(input));
      chain.push_back(&made.back()->request);
    }
    const transport::PostOutcome outcome = lane_->post(chain, posted_.size());
    require(outcome.taken == count || (outcome.taken == 0 && outcome.error != 0),
            "a chain is taken whole, or refused");
    if (outcome.taken == 0) return;
    for (auto& each : made) posted_.push_back(std::move(each));
  }

  static std::unique_ptr<Posted> make(Input& input) {
    auto made = std::make_unique<Posted>();
    transport::WorkRequest& request = made->request;
    const std::uint8_t what = input.byte();
    request.opcode = static_cast<Opcode>(what % 7);
    request.length_bytes =
        (what & 0x80U) != 0 ? 1 + input.take<std::uint16_t>() % 40000 : 1 + input.byte();
    const bool flush = request.opcode == Opcode::kFlush;
    if (is_atomic(request.opcode)) request.length_bytes = 8;
    if (flush) request.length_bytes = 1;
    request.remote_address = input.byte();
    request.remote_key = input.byte();
    const std::uint8_t operand = input.byte();
    if (is_atomic(request.opcode)) request.operands.atomic.compare_or_add = operand;
    if (request.opcode == Opcode::kNotify) {
      made->notice = {.grant_id = request.length_bytes,
                      .offset_bytes = request.remote_address,
                      .length_bytes = operand,
                      .tag = request.remote_key};
      request = transport::WorkRequest::notify(made->notice);
    }
    const bool has_buffer = is_transfer(request.opcode);
    made->memory.assign((has_buffer ? request.length_bytes : 0) + kGuardBytes, kCanary);
    if (has_buffer) {
      request.local = made->memory.data();
      std::fill_n(made->memory.begin(), request.length_bytes, std::byte{input.byte()});
    }
    made->before = made->memory;
    return made;
  }

  void poll() {
    std::array<transport::LaneCompletion, 4> found;
    const std::size_t count = lane_->poll(found);
    for (std::size_t i = 0; i < count; ++i) {
      require(found[i].sequence >= told_ && found[i].sequence < posted_.size(),
              "a completion is of what was posted, and comes once");
      // Those before it that were not told of have succeeded with it.
      while (told_ < found[i].sequence) tell(CompletionStatus::kSuccess);
      tell(found[i].status);
    }
  }

  void tell(CompletionStatus status) {
    Posted& posted = *posted_[told_++];
    posted.told = true;
    posted.status = status;
    if (status == CompletionStatus::kSuccess) {
      require(!failed_, "nothing succeeds behind what has failed");
      ++good_;
    } else {
      failed_ = true;
    }
    if (posted.request.opcode != Opcode::kRead)
      require(posted.before == posted.memory, "a write's buffer is not touched");
    posted.before = posted.memory;
  }

  /// What stands behind a buffer stays, always; and each buffer, once it was told of.
  static void check_memory(const Posted& posted) {
    require(std::all_of(posted.memory.end() - kGuardBytes, posted.memory.end(),
                        [](std::byte byte) { return byte == kCanary; }),
            "what stands behind a buffer is not touched");
    require(posted.before == posted.memory, "a buffer is not touched after it was told of");
  }

  static bool carries_notice(const tcp::RequestHeader& header, const transport::Notice& notice) {
    return header.swap == notice.grant_id && header.address == notice.offset_bytes &&
           header.compare_or_add == notice.length_bytes && header.key == notice.tag;
  }
  static bool names_memory(const tcp::RequestHeader& header,
                           const transport::WorkRequest& request) {
    return header.address == request.remote_address && header.key == request.remote_key &&
           header.compare_or_add == request.operands.atomic.compare_or_add &&
           header.swap == request.operands.atomic.swap;
  }

  std::size_t deliver(std::size_t most) { return peer_.deliver(most); }

  /// Receives what the lane has sent, and holds it against what was posted.
  std::size_t hear(std::size_t most) {
    const std::size_t got = peer_.hear(most);
    while (read_on()) {
    }
    return got;
  }

  bool read_on() {
    const std::span<const std::byte> heard = std::span{peer_.heard()}.subspan(read_);
    if (heard.size() < kHeader) return false;
    const auto header = tcp::RequestHeader::from_wire(heard.first<kHeader>());
    require(header.has_value(), "what a lane sends are requests");
    require(received_.size() < posted_.size(), "a lane sends what was posted");
    const Posted& posted = *posted_[received_.size()];
    const bool flush = posted.request.opcode == Opcode::kFlush;
    const Opcode opcode = flush ? Opcode::kRead : posted.request.opcode;
    require(header->opcode == opcode && header->length_bytes == posted.request.length_bytes &&
                header->sequence == static_cast<std::uint32_t>(received_.size()) &&
                (opcode == Opcode::kNotify ? carries_notice(*header, posted.notice)
                                           : names_memory(*header, posted.request)),
            "a request goes out as it was posted");
    const std::size_t payload = opcode == Opcode::kWrite ? header->length_bytes : 0;
    if (heard.size() < kHeader + payload) return false;
    require(std::equal(heard.begin() + kHeader,
                       heard.begin() + static_cast<std::ptrdiff_t>(kHeader + payload),
                       posted.before.begin()),
            "a write's bytes go out as they are");
    read_ += kHeader + payload;
    received_.push_back({header->answered, opcode, header->length_bytes});
    return true;
  }

  /// The answer to the next request that has come whole; the input says how it is spoilt.
  void answer(Input& input) {
    while (next_ < received_.size() && !received_[next_].answered) ++next_;
    if (next_ == received_.size()) return;
    const Received& asked = received_[next_];
    const std::uint8_t how = input.byte();
    Bytes payload(transport::tcp::answer_bytes(asked.opcode, asked.length), std::byte{how});
    tcp::AnswerHeader header{.opcode = asked.opcode,
                             .sequence = static_cast<std::uint32_t>(next_),
                             .length_bytes = static_cast<std::uint32_t>(payload.size()),
                             .payload_crc = crc_ ? crc32c(payload) : 0};
    ++next_;
    if ((how & 7U) == 1) {  // a refusal, maybe of one of the writes before it
      header.status = static_cast<CompletionStatus>(1 + input.below(20));
      header.sequence -= input.below(4);
      header.length_bytes = 0;
      payload.clear();
      clean_ = false;
    }
    std::array<std::byte, kAnswer> bytes{};
    header.to_wire(bytes);
    if ((how & 7U) == 2) {
      bytes[input.below(kAnswer)] ^= std::byte{input.byte()};
      if (input.flag()) tcp::wire::seal(std::span{bytes});
      clean_ = false;
    }
    if ((how & 7U) == 3 && !payload.empty() && crc_) {
      payload[input.take<std::uint16_t>() % payload.size()] ^= std::byte{1};
      clean_ = false;
    }
    peer_.say(bytes);
    peer_.say(payload);
  }

  /// How many requests the answers that were delivered speak well of, by the tables of tcp/wire.h.
  [[nodiscard]] std::size_t successes_expected() const {
    const std::span<const std::byte> said = std::span{peer_.said()}.first(peer_.delivered());
    std::size_t at = 0;
    std::size_t good = 0;
    for (std::size_t i = 0; i < received_.size(); ++i) {
      const Received& asked = received_[i];
      if (!asked.answered) continue;
      if (said.size() - at < kAnswer) return good;
      const auto header = tcp::AnswerHeader::from_wire(said.subspan(at).first<kAnswer>());
      const std::uint32_t payload = transport::tcp::answer_bytes(asked.opcode, asked.length);
      if (!header) return good;
      if (header->status != CompletionStatus::kSuccess)  // those before the one that it names
        return header->sequence >= good && header->sequence <= i ? header->sequence : good;
      const bool has_sum = crc_ && payload != 0;
      if (header->opcode != asked.opcode || header->sequence != static_cast<std::uint32_t>(i) ||
          header->length_bytes != payload || (!has_sum && header->payload_crc != 0) ||
          said.size() - at - kAnswer < payload)
        return good;
      if (has_sum && crc32c(said.subspan(at + kAnswer, payload)) != header->payload_crc)
        return std::max(good, i);
      at += kAnswer + payload;
      good = i + 1;
    }
    return good;
  }

  bool crc_;
  SocketPair sockets_;
  std::unique_ptr<transport::Lane> lane_;
  Peer peer_{std::move(sockets_.ours)};
  std::vector<std::unique_ptr<Posted>> posted_;
  std::size_t told_ = 0;
  std::size_t good_ = 0;
  bool failed_ = false;
  bool clean_ = true;  ///< the server has answered as it should, so far
  std::vector<Received> received_;
  std::size_t read_ = 0;  ///< of what was heard
  std::size_t next_ = 0;  ///< request to be answered
};

}  // namespace

void fuzz_client_lane(Input& input) {
  ClientRun run{input.byte()};
  while (!input.empty()) run.act(input);
  run.settle();
}

}  // namespace remora::fuzz
