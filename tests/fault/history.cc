#include "history.h"

#include <chrono>
#include <fcntl.h>
#include <new>
#include <set>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace remora::fault {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "shared between processes");
static_assert(std::atomic<Effect>::is_always_lock_free, "shared between processes");

std::int64_t now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void LoadPage::Unmap::operator()(Header* header) const noexcept { ::munmap(header, length); }

std::size_t LoadPage::bytes_of(std::size_t block_count, std::size_t record_count) noexcept {
  return sizeof(Header) + block_count * sizeof(BlockCell) + record_count * sizeof(AtomicRecord);
}

LoadPage LoadPage::map(int descriptor, std::size_t length) {
  const int flags = descriptor < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
  void* const at = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, flags, descriptor, 0);
  if (descriptor >= 0) ::close(descriptor);
  if (at == MAP_FAILED) throw std::runtime_error("the load's page cannot be mapped");
  return LoadPage{std::unique_ptr<Header, Unmap>{static_cast<Header*>(at), Unmap{length}}};
}

LoadPage LoadPage::create(const std::string& path, std::size_t block_count,
                          std::size_t record_count) {
  record_count += kLastRecords;
  const std::size_t length = bytes_of(block_count, record_count);
  int descriptor = -1;
  if (!path.empty()) {
    descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (descriptor < 0 || ::ftruncate(descriptor, static_cast<off_t>(length)) != 0)
      throw std::runtime_error(path + ": the load's page cannot be made");
  }
  LoadPage page = map(descriptor, length);
  Header& header = *new (page.header_.get()) Header{block_count, record_count, 0, 0, {}};
  header.next = 0;
  for (BlockCell& cell : page.blocks()) new (&cell) BlockCell;
  return page;
}

LoadPage LoadPage::open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat found {};
  if (descriptor < 0 || ::fstat(descriptor, &found) != 0)
    throw std::runtime_error(path + ": there is no page of a load");
  return map(descriptor, static_cast<std::size_t>(found.st_size));
}

std::span<BlockCell> LoadPage::blocks() const noexcept {
  return {reinterpret_cast<BlockCell*>(header_.get() + 1), header_->block_count};
}

KindCell& LoadPage::kind(std::size_t number) const noexcept { return header_->kinds.at(number); }

std::span<AtomicRecord> LoadPage::records() const noexcept {
  const std::span<BlockCell> cells = blocks();
  return {reinterpret_cast<AtomicRecord*>(cells.data() + cells.size()), header_->record_count};
}

std::size_t LoadPage::size() const noexcept {
  return std::min<std::uint64_t>(header_->next, header_->record_count);
}

AtomicRecord* LoadPage::begin(std::uint64_t memory, std::uint64_t word,
                              const WordOperation& operation, std::uint32_t thread,
                              Room room) noexcept {
  const std::uint64_t kept = room == Room::kLast ? 0 : kLastRecords;
  if (header_->next + kept >= header_->record_count) return nullptr;
  const std::uint64_t index = header_->next.fetch_add(1);
  if (index >= header_->record_count) return nullptr;
  AtomicRecord& record = *new (&records()[index]) AtomicRecord;
  record.memory = memory;
  record.word = word;
  record.expected = operation.expected;
  record.desired = operation.desired;
  record.kind = static_cast<std::uint32_t>(operation.kind);
  record.thread = thread;
  record.invoked_ns = now_ns();
  record.there = true;
  return &record;
}

void LoadPage::end(AtomicRecord& record, Effect effect, std::uint64_t result) noexcept {
  record.result = result;
  record.responded_ns = now_ns();
  record.effect = effect;
}

std::vector<WordOperation> LoadPage::of(std::uint64_t memory, std::uint64_t word) const {
  std::vector<WordOperation> found;
  for (const AtomicRecord& record : records().first(size())) {
    if (!record.there || record.memory != memory || record.word != word) continue;
    WordOperation operation;
    operation.kind = static_cast<WordOperation::Kind>(record.kind);
    operation.expected = record.expected;
    operation.desired = record.desired;
    operation.thread = record.thread;
    operation.invoked_ns = record.invoked_ns;
    switch (record.effect) {
      case Effect::kNone: operation.end = WordOperation::End::kVoid; break;
      case Effect::kDone:
        operation.end = WordOperation::End::kDone;
        operation.result = record.result;
        operation.responded_ns = record.responded_ns;
        break;
      default: operation.end = WordOperation::End::kUnknown; break;
    }
    found.push_back(operation);
  }
  return found;
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> LoadPage::words() const {
  std::set<std::pair<std::uint64_t, std::uint64_t>> found;
  for (const AtomicRecord& record : records().first(size()))
    if (record.there) found.emplace(record.memory, record.word);
  return {found.begin(), found.end()};
}

Linearizability check_words(const LoadPage& page, std::uint64_t initial) {
  Linearizability all;
  for (const auto& [memory, word] : page.words()) {
    Linearizability one = check_linearizable(page.of(memory, word), initial);
    all.operation_count += one.operation_count;
    all.steps += one.steps;
    if (one.verdict == Linearizability::Verdict::kLinearizable) continue;
    one.text = "word at " + std::to_string(word) + ": " + one.text;
    one.operation_count = all.operation_count;
    return one;
  }
  return all;
}

}  // namespace remora::fault
