#pragma once

/// Members of a mirror in memory, with grants, fences and faults.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <remora/volume/records.h>

#include "member_opener.h"
#include "mirror_member.h"

namespace remora::volume::test {

/// What happens to a write.
enum class WriteFault : std::uint8_t {
  kNone,
  kRefused,   ///< kConnectionLost: without effect
  kLost,      ///< kIndeterminate: without effect
  kApplied,   ///< kIndeterminate: it took effect
  kLate,      ///< kIndeterminate: it takes effect at deliver_late(), if its grant is valid then
  kBadMemory  ///< kProvider: the buffer of the caller
};

/// Which write of which member, in the order in which they took effect.
struct WriteLogEntry {
  std::string region{};
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;
};

/// What all members of a test share.
struct WriteLog {
  std::mutex mutex;
  std::vector<WriteLogEntry> entries;

  std::vector<WriteLogEntry> take() {
    const std::lock_guard lock{mutex};
    return std::exchange(entries, {});
  }
};

/// The memory of one member. Thread-safe.
class FakeRegion {
 public:
  FakeRegion(std::string name, std::uint64_t bytes, WriteLog& log)
      : name_{std::move(name)}, bytes_(bytes), log_{log} {}

  Status write(std::uint64_t grant, std::uint64_t offset, std::span<const std::byte> from) {
    const std::lock_guard lock{mutex_};
    if (dead_) return *dead_;
    if (grant < valid_from_) return fenced();
    WriteFault fault = WriteFault::kNone;
    if (!faults_.empty()) {
      fault = faults_.front();
      faults_.pop_front();
    }
    switch (fault) {
      case WriteFault::kRefused: return Error{Code::kConnectionLost, "write"};
      case WriteFault::kBadMemory: return Error{Code::kProvider, "write"};
      case WriteFault::kLost: return doubt();
      case WriteFault::kLate:
        late_.push_back({grant, offset, {from.begin(), from.end()}});
        return doubt();
      case WriteFault::kApplied: apply(offset, from); return doubt();
      case WriteFault::kNone: break;
    }
    apply(offset, from);
    return {};
  }
  Status read(std::uint64_t grant, std::uint64_t offset, std::span<std::byte> into) {
    const std::lock_guard lock{mutex_};
    if (dead_) return *dead_;
    if (grant < valid_from_) return fenced();
    std::memcpy(into.data(), bytes_.data() + offset, into.size());
    return {};
  }
  Status settled() {
    const std::lock_guard lock{mutex_};
    if (dead_ || !settles_) return Error{Code::kTimedOut, "settled"};
    late_.clear();
    return {};
  }
  [[nodiscard]] bool connected() const {
    const std::lock_guard lock{mutex_};
    return !dead_;
  }
  [[nodiscard]] TransportKind transport() const {
    const std::lock_guard lock{mutex_};
    return transport_;
  }
  Result<std::uint64_t> grant(bool fences) {
    const std::lock_guard lock{mutex_};
    if (dead_) return *dead_;
    ++last_grant_;
    if (fences) {
      valid_from_ = last_grant_;
      late_.clear();
      ++fences_;
    }
    return last_grant_;
  }

  // For the test.
  void fail_writes(std::initializer_list<WriteFault> faults) {
    const std::lock_guard lock{mutex_};
    faults_.assign(faults);
  }
  /// Of every call from now on.
  void die(const Error& error = Error{Code::kConnectionLost, "member"}) {
    const std::lock_guard lock{mutex_};
    dead_ = error;
  }
  void revive() {
    const std::lock_guard lock{mutex_};
    dead_.reset();
  }
  void set_settles(bool settles) {
    const std::lock_guard lock{mutex_};
    settles_ = settles;
  }
  void be_over(TransportKind transport) {
    const std::lock_guard lock{mutex_};
    transport_ = transport;
  }
  void deliver_late() {
    const std::lock_guard lock{mutex_};
    for (const Late& late : late_)
      if (late.grant >= valid_from_) apply(late.offset, late.bytes);
    late_.clear();
  }
  [[nodiscard]] std::vector<std::byte> bytes(std::uint64_t offset, std::uint64_t length) const {
    const std::lock_guard lock{mutex_};
    const auto from = bytes_.begin() + static_cast<std::ptrdiff_t>(offset);
    return {from, from + static_cast<std::ptrdiff_t>(length)};
  }
  void set_bytes(std::uint64_t offset, std::span<const std::byte> bytes) {
    const std::lock_guard lock{mutex_};
    std::memcpy(bytes_.data() + offset, bytes.data(), bytes.size());
  }
  /// The answers to operations of lanes come after release_answers() only. What is posted takes
  /// effect at once.
  void hold_answers() {
    const std::lock_guard lock{mutex_};
    held_ = true;
  }
  void release_answers() {
    const std::lock_guard lock{mutex_};
    held_ = false;
    changed_.notify_all();
  }
  void await_answers() {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [this] { return !held_; });
  }
  /// Blocks until lanes have posted so many operations.
  void await_posted(std::size_t count) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return posted_ >= count; });
  }
  void note_posted(std::size_t count) {
    const std::lock_guard lock{mutex_};
    posted_ += count;
    changed_.notify_all();
  }
  [[nodiscard]] std::size_t posted() const {
    const std::lock_guard lock{mutex_};
    return posted_;
  }
  [[nodiscard]] int fences() const {
    const std::lock_guard lock{mutex_};
    return fences_;
  }

 private:
  struct Late {
    std::uint64_t grant = 0;
    std::uint64_t offset = 0;
    std::vector<std::byte> bytes{};
  };
  [[nodiscard]] static Error doubt() { return Error{Code::kIndeterminate, "write"}; }
  [[nodiscard]] static Error fenced() {
    return Error{Code::kAccessRefused, "member"}.with_reason(Reason::kFenced);
  }
  void apply(std::uint64_t offset, std::span<const std::byte> from) {
    std::memcpy(bytes_.data() + offset, from.data(), from.size());
    const std::lock_guard lock{log_.mutex};
    log_.entries.push_back({name_, offset, from.size()});
  }

  const std::string name_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  std::size_t posted_ = 0;
  std::vector<std::byte> bytes_;
  WriteLog& log_;
  std::deque<WriteFault> faults_;
  std::optional<Error> dead_;
  bool settles_ = true;
  TransportKind transport_ = TransportKind::kTcp;
  std::vector<Late> late_;
  std::uint64_t last_grant_ = 0;
  std::uint64_t valid_from_ = 0;
  int fences_ = 0;
};

class FakeLane final : public detail::MemberLane {
 public:
  FakeLane(std::shared_ptr<FakeRegion> region, std::uint64_t grant)
      : region_{std::move(region)}, grant_{grant} {}
  void post(std::span<const detail::MemberWrite> writes) noexcept override {
    outcome_ = {};
    for (const detail::MemberWrite& write : writes) {
      const std::vector<std::byte> zeroes(write.zeroes);
      note(region_->write(
          grant_, write.offset_bytes,
          write.zeroes != 0 ? std::span<const std::byte>{zeroes} : write.from.bytes()));
    }
    region_->note_posted(writes.size());
  }
  void post_reads(std::span<const detail::MemberRead> reads) noexcept override {
    outcome_ = {};
    for (const detail::MemberRead& read : reads)
      note(region_->read(grant_, read.offset_bytes, read.into.bytes()));
    region_->note_posted(reads.size());
  }
  Status wait() noexcept override {
    region_->await_answers();
    return outcome_;
  }

 private:
  void note(const Status& status) noexcept {
    if (!status && (outcome_ || status.error().code() == Code::kIndeterminate)) outcome_ = status;
  }

  std::shared_ptr<FakeRegion> region_;
  std::uint64_t grant_;
  Status outcome_;
};

class FakeMember final : public detail::MirrorMember {
 public:
  FakeMember(std::shared_ptr<FakeRegion> region, std::uint64_t grant)
      : region_{std::move(region)}, grant_{grant} {}
  Result<std::unique_ptr<detail::MemberLane>> take_lane() noexcept override {
    return std::unique_ptr<detail::MemberLane>{std::make_unique<FakeLane>(region_, grant_)};
  }
  void return_lane(std::unique_ptr<detail::MemberLane> /*lane*/) noexcept override {}
  Status read(std::uint64_t offset_bytes, const Target& into) noexcept override {
    return region_->read(grant_, offset_bytes, into.bytes());
  }
  Status settled(std::chrono::nanoseconds /*limit*/) noexcept override {
    return region_->settled();
  }
  [[nodiscard]] bool connected() const noexcept override { return region_->connected(); }
  [[nodiscard]] TransportKind transport() const noexcept override { return region_->transport(); }

 private:
  std::shared_ptr<FakeRegion> region_;
  std::uint64_t grant_;
};

class FakeOpener final : public detail::MemberOpener {
 public:
  Result<std::shared_ptr<detail::MirrorMember>> open(const Member& member) override {
    return granted(member, false);
  }
  Result<std::shared_ptr<detail::MirrorMember>> fence(const Member& member) override {
    return granted(member, true);
  }
  void add(const std::string& region, std::shared_ptr<FakeRegion> memory) {
    const std::lock_guard lock{mutex_};
    regions_[region] = std::move(memory);
  }

 private:
  Result<std::shared_ptr<detail::MirrorMember>> granted(const Member& member, bool fences) {
    const std::lock_guard lock{mutex_};
    const auto found = regions_.find(member.region);
    if (found == regions_.end()) return Error{Code::kUnknownRegion, "open"};
    const auto grant = found->second->grant(fences);
    if (!grant) return grant.error();
    return std::shared_ptr<detail::MirrorMember>{
        std::make_shared<FakeMember>(found->second, *grant)};
  }
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<FakeRegion>> regions_;
};

}  // namespace remora::volume::test
