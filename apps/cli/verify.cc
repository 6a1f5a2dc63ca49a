/// --verify of put and get.

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>

#include <remora/config/printable.h>
#include <remora/mutex.h>

#include "cli/interrupt.h"
#include "cli/pipeline.h"
#include "cli/progress.h"
#include "cli/transfer.h"

namespace remora::apps {
namespace {

/// Compares the bytes of a region or volume with local ones.
class CompareTarget final : public DownloadTarget {
 public:
  struct Difference {
    std::uint64_t at = std::numeric_limits<std::uint64_t>::max();  ///< max(): there is none
    std::byte remote{};
    std::byte here{};
  };

  explicit CompareTarget(const ReadAt& read_at) : read_at_{read_at} {}

  Status write(std::uint64_t at, std::span<const std::byte> bytes) override {
    const auto buffer = std::make_unique_for_overwrite<std::byte[]>(bytes.size());
    const std::span<std::byte> here{buffer.get(), bytes.size()};
    const auto got = read_at_(at, here);
    if (!got) return got.error();
    if (*got < bytes.size()) return Error{Code::kSystem, "a file that became shorter: read file"};
    if (std::memcmp(here.data(), bytes.data(), bytes.size()) == 0) return ok_status();
    const auto place = std::mismatch(bytes.begin(), bytes.end(), here.begin());
    const auto index = static_cast<std::uint64_t>(place.first - bytes.begin());
    const detail::MutexLock lock{mutex_};
    if (at + index < first_.at) first_ = {at + index, *place.first, *place.second};
    return ok_status();
  }

  /// The first difference.
  [[nodiscard]] Difference first() {
    const detail::MutexLock lock{mutex_};
    return first_;
  }

 private:
  const ReadAt& read_at_;
  detail::Mutex mutex_;
  Difference first_ REMORA_GUARDED_BY(mutex_);
};

/// For bytes of which only the checksum is needed.
class DropTarget final : public DownloadTarget {
 public:
  Status write(std::uint64_t /*at*/, std::span<const std::byte> /*bytes*/) override {
    return ok_status();
  }
};

std::string hex_byte(std::byte value) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "0x%02x", std::to_integer<unsigned>(value));
  return text.data();
}

Failure different(const Verification& job, const std::string& text) {
  return Failure{ExitCode::kDifferent, job.what + ": verify: " + text + "; " + job.remedy};
}

tl::expected<void, Failure> verify_bytes(const Verification& job, const TransferJob& transfer) {
  CompareTarget target{job.read_at};
  const Transferred read = download(transfer, target);
  if (!read.status) return fail(read.status.error(), job.what + ": verify");
  const CompareTarget::Difference first = target.first();
  if (first.at == std::numeric_limits<std::uint64_t>::max()) return {};
  return tl::make_unexpected(
      different(job, "byte " + std::to_string(first.at) + " of the file is " +
                         hex_byte(first.here) + ", byte " + std::to_string(job.offset + first.at) +
                         " of " + job.store.name() + " is " + hex_byte(first.remote)));
}

tl::expected<void, Failure> verify_digest(const Verification& job, TransferJob transfer) {
  auto sum = Checksum::make(job.checksum);
  if (!sum) return fail(sum.error(), "--checksum");
  auto checksum = ChecksumThread::start(std::move(*sum), 0);
  if (!checksum) return fail(checksum.error(), job.what + ": verify");
  transfer.checksum = checksum->get();
  DropTarget target;
  const Transferred read = download(transfer, target);
  if (!read.status) return fail(read.status.error(), job.what + ": verify");
  const std::string found = (*checksum)->digest();
  if (found == job.digest) return {};
  return tl::make_unexpected(different(
      job, "the " + std::to_string(job.length) + " bytes of " + job.store.name() + " from offset " +
               std::to_string(job.offset) + " have the " + std::string{to_string(job.checksum)} +
               " " + found + ", the transferred ones " + job.digest));
}

}  // namespace

tl::expected<void, Failure> verify(const Verification& job) {
  Progress progress{config::printable("verify " + job.what), job.length};
  TransferJob transfer{.store = job.store};
  transfer.offset = job.offset;
  transfer.length = job.length;
  transfer.streams = job.streams;
  transfer.progress = [&progress](std::uint64_t done) { progress.update(done); };
  return job.read_at ? verify_bytes(job, transfer) : verify_digest(job, transfer);
}

}  // namespace remora::apps
