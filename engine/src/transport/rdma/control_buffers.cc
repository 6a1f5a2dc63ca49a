#include "transport/rdma/control_buffers.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "transport/rdma/completion_vector.h"
#include "transport/rdma/lane.h"
#include "transport/rdma/wrong_completion.h"

namespace remora::transport::rdma {

namespace {

constexpr std::chrono::microseconds kSendPause{100};

/// Nothing that the device reports of the pair is believed from here on.
Error distrust(const verbs::QueuePair<verbs::Rc>& pair, const verbs::Completion& completion) {
  (void)pair.to_error();
  return wrong_completion(pair.domain().device(), completion);
}

}  // namespace

Result<ControlBuffers> ControlBuffers::create(const verbs::ProtectionDomain& domain) {
  auto send_queue = domain.device().create_completion_queue({.depth = kControlSends});
  if (!send_queue) return send_queue.error();
  auto receive_queue =
      domain.device().create_completion_queue({.depth = kControlReceives,
                                               .events = true,
                                               .vector = next_completion_vector(domain.device())});
  if (!receive_queue) return receive_queue.error();
  ControlBuffers made{
      std::vector<std::byte>((kControlReceives + kControlSends) * kMaxControlMessageBytes),
      std::move(*send_queue), std::move(*receive_queue)};
  auto memory = domain.register_bytes(made.bytes_, verbs::Access::kLocalWrite);
  if (!memory) return memory.error();
  made.memory_ = std::move(*memory);
  for (std::size_t i = 0; i < kControlSends; ++i) made.free_sends_.push_back(kControlReceives + i);
  return made;
}

verbs::QueuePairBuilder<verbs::Rc> ControlBuffers::builder() const {
  verbs::QueuePairBuilder<verbs::Rc> builder{memory_->domain(), send_queue_, receive_queue_};
  builder.send_depth(kControlSends).receive_depth(kControlReceives).access(verbs::Access::kNone);
  limit_depths(builder, Asks::kNeither, false);
  return builder;
}

Status ControlBuffers::post_receive(verbs::QueuePair<verbs::Rc>& pair, std::size_t index) noexcept {
  return pair.post_receive(
      index, memory_->slice(index * kMaxControlMessageBytes, kMaxControlMessageBytes));
}

Status ControlBuffers::post_receives(verbs::QueuePair<verbs::Rc>& pair) {
  for (std::size_t i = 0; i < kControlReceives; ++i)
    if (auto status = post_receive(pair, i); !status) return status;
  return receive_queue_.arm();
}

bool ControlBuffers::is_sent(std::uint64_t index) const noexcept {
  return index >= kControlReceives && index < kControlReceives + kControlSends &&
         std::find(free_sends_.begin(), free_sends_.end(), index) == free_sends_.end();
}

Status ControlBuffers::collect_sends(verbs::QueuePair<verbs::Rc>& pair) noexcept {
  std::array<verbs::Completion, kControlSends> storage;
  const auto sent = send_queue_.poll(storage);
  if (!sent) return sent.error();
  for (const verbs::Completion& completion : *sent) {
    if (!completion.ok())
      return Error{Code::kConnectionLost, "control channel"}
          .with_reason(Reason::kPeerGone)
          .with_completion(completion.status(), completion.vendor_error());
    if (!is_sent(completion.id())) return distrust(pair, completion);
    free_sends_.push_back(completion.id());
  }
  return {};
}

void ControlBuffers::flush(verbs::QueuePair<verbs::Rc>& pair, Deadline deadline) noexcept {
  while (collect_sends(pair) && free_sends_.size() < kControlSends && Clock::now() < deadline)
    std::this_thread::sleep_for(kSendPause);
}

Status ControlBuffers::wait_for_room(verbs::QueuePair<verbs::Rc>& pair,
                                     Deadline deadline) noexcept {
  while (true) {
    if (auto status = collect_sends(pair); !status) return status;
    if (!free_sends_.empty()) return {};
    if (Clock::now() >= deadline) return Error{Code::kTimedOut, "control channel"};
    std::this_thread::sleep_for(kSendPause);
  }
}

Status ControlBuffers::send(verbs::QueuePair<verbs::Rc>& pair, std::span<const std::byte> message,
                            Deadline deadline) noexcept {
  if (message.size() > kMaxControlMessageBytes)
    return Error{Code::kLimitExceeded, "control message"}.with_limit(message.size(),
                                                                     kMaxControlMessageBytes);
  if (auto status = wait_for_room(pair, deadline); !status) return status;
  const std::size_t index = free_sends_.back();
  free_sends_.pop_back();
  std::memcpy(buffer(index).data(), message.data(), message.size());
  auto batch = pair.start();
  batch.send(index, memory_->slice(index * kMaxControlMessageBytes, message.size()));
  return batch.post();
}

Result<std::optional<ControlMessage>> ControlBuffers::take_one(
    verbs::QueuePair<verbs::Rc>& pair) noexcept {
  std::array<verbs::Completion, 1> storage;
  const auto arrived = receive_queue_.poll(storage);
  if (!arrived) return arrived.error();
  if (arrived->empty()) return std::optional<ControlMessage>{};
  const verbs::Completion& completion = arrived->front();
  if (!completion.ok())
    return Error{Code::kConnectionLost, "control channel"}
        .with_reason(Reason::kPeerGone)
        .with_completion(completion.status(), completion.vendor_error());
  if (completion.id() >= kControlReceives || completion.length_bytes() > kMaxControlMessageBytes)
    return distrust(pair, completion);
  const auto bytes = buffer(completion.id()).first(completion.length_bytes());
  ControlMessage message{.bytes = {bytes.begin(), bytes.end()}, .descriptors = {}};
  if (auto status = post_receive(pair, completion.id()); !status) return status.error();
  return std::optional{std::move(message)};
}

Result<std::optional<ControlMessage>> ControlBuffers::receive(
    verbs::QueuePair<verbs::Rc>& pair) noexcept {
  auto message = take_one(pair);
  if (!message || message->has_value()) return message;
  if (auto taken = receive_queue_.take_events(); !taken) return taken.error();
  if (auto status = receive_queue_.arm(); !status) return status.error();
  // A message that arrived before arming makes no event.
  return take_one(pair);
}

}  // namespace remora::transport::rdma
