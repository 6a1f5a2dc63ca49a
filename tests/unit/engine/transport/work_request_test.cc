#include "transport/work_request.h"

#include <gtest/gtest.h>

namespace remora::transport {
namespace {

constexpr Notice kNotice{.grant_id = 1, .offset_bytes = 2, .length_bytes = 3, .tag = 4};

TEST(WorkRequest, NoticeIsItsOwnAndNoPartOfTheMemory) {
  const WorkRequest request = WorkRequest::notify(kNotice);
  EXPECT_EQ(request.opcode, Opcode::kNotify);
  EXPECT_EQ(&request.notice(), &kNotice);
  EXPECT_EQ(request.local, nullptr);
  EXPECT_EQ(request.length_bytes, 0U);
  EXPECT_EQ(request.remote_address, 0U);
  EXPECT_EQ(request.remote_key, 0U);
}

TEST(WorkRequest, CopyHasTheSameNotice) {
  WorkRequest copy;
  copy = WorkRequest::notify(kNotice);
  EXPECT_EQ(&copy.notice(), &kNotice);
}

template <typename T>
concept Notifies = requires(T&& notice) {
  WorkRequest::notify(static_cast<T&&>(notice));
};

TEST(WorkRequest, NoticeThatIsATemporaryDoesNotCompile) {
  static_assert(Notifies<const Notice&>);
  static_assert(!Notifies<Notice>);
}

TEST(WorkRequest, AtomicsHaveTheirOperands) {
  constexpr WorkRequest kSwap = WorkRequest::compare_swap(5, 6);
  EXPECT_EQ(kSwap.opcode, Opcode::kCompareSwap);
  EXPECT_EQ(kSwap.operands.atomic.compare_or_add, 5U);
  EXPECT_EQ(kSwap.operands.atomic.swap, 6U);
  constexpr WorkRequest kAdd = WorkRequest::fetch_add(7);
  EXPECT_EQ(kAdd.opcode, Opcode::kFetchAdd);
  EXPECT_EQ(kAdd.operands.atomic.compare_or_add, 7U);
  EXPECT_EQ(kAdd.operands.atomic.swap, 0U);
}

}  // namespace
}  // namespace remora::transport
