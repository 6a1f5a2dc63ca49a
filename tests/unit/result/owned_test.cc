/// Handles and the process that made them.

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <remora/owned.h>

#include "support/forked.h"

namespace remora::detail {
namespace {

using test::Forked;

struct Counted {
  explicit Counted(int& destroyed) noexcept : destroyed_{destroyed} {}
  ~Counted() { ++destroyed_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  int& destroyed_;
};

template <typename Pointer>
Owned<Pointer> make(int& destroyed) {
  return Owned<Pointer>{Pointer{new Counted{destroyed}}};
}

template <typename Pointer>
class OwnedTest : public ::testing::Test {};
using Pointers = ::testing::Types<std::unique_ptr<Counted>, std::shared_ptr<Counted>>;
TYPED_TEST_SUITE(OwnedTest, Pointers);

TYPED_TEST(OwnedTest, OneThatIsEmptyOrMovedFromIsNull) {
  int destroyed = 0;
  {
    Owned<TypeParam> empty;
    EXPECT_TRUE(empty == nullptr);
    EXPECT_FALSE(empty);
    EXPECT_FALSE(empty.foreign());
    EXPECT_EQ(empty.get(), nullptr);
    Owned<TypeParam> owned = make<TypeParam>(destroyed);
    EXPECT_FALSE(owned == nullptr);
    EXPECT_NE(owned.get(), nullptr);
    Owned<TypeParam> taken{std::move(owned)};
    EXPECT_TRUE(owned == nullptr);  // NOLINT(bugprone-use-after-move): the subject
    owned = std::move(taken);
    EXPECT_TRUE(owned);
    EXPECT_EQ(destroyed, 0);
    owned = make<TypeParam>(destroyed);
    EXPECT_EQ(destroyed, 1);
    owned.reset();
    EXPECT_EQ(destroyed, 2);
    EXPECT_TRUE(owned == nullptr);
    owned = make<TypeParam>(destroyed);
  }
  EXPECT_EQ(destroyed, 3);
}

TYPED_TEST(OwnedTest, ChildOfForkHasNullAndDestroysNothing) {
  int destroyed = 0;
  Owned<TypeParam> first = make<TypeParam>(destroyed);
  Owned<TypeParam> second = make<TypeParam>(destroyed);
  Owned<TypeParam> third = make<TypeParam>(destroyed);
  Forked child{[&] {
    std::string wrong;
    if (first != nullptr || first || first.get() != nullptr) wrong += "it is not null ";
    if (!first.foreign()) wrong += "it is not foreign ";
    {
      const Owned<TypeParam> taken{std::move(first)};
      if (!taken.foreign() || first.foreign()) wrong += "moving it changes what it is ";
    }
    second = make<TypeParam>(destroyed);
    if (second == nullptr || second.foreign()) wrong += "a new one is not the child's ";
    third.reset();
    if (destroyed != 0) wrong += "a parent's object was destroyed ";
    second.reset();
    if (destroyed != 1) wrong += "the child's own was not ";
    return wrong;
  }};
  EXPECT_EQ(child.found(), "");
  EXPECT_TRUE(first && second && third);
  EXPECT_EQ(destroyed, 0);
}

TEST(OwnedSharedTest, CopiesAndWhatIsSharedBelongToTheSameProcess) {
  int destroyed = 0;
  const OwnedShared<Counted> owned = make<std::shared_ptr<Counted>>(destroyed);
  Forked child{[&] {
    const OwnedShared<Counted> copy = owned;  // NOLINT(performance-unnecessary-copy-initialization)
    const auto shared = owned.share(std::make_shared<int>(1));
    return std::string{copy.foreign() && shared.foreign() ? "" : "a copy is not foreign"};
  }};
  EXPECT_EQ(child.found(), "");
  EXPECT_TRUE(owned.share(std::make_shared<int>(1)));
  EXPECT_FALSE(owned.share(std::shared_ptr<int>{}));
}

TEST(PerProcessTest, ChildHasOneOfItsOwn) {
  static PerProcess<int> number;
  number.get() = 7;
  int* const mine = &number.get();
  Forked child{[&] {
    if (&number.get() == mine || number.get() != 0) return std::string{"it is the parent's"};
    number.get() = 8;
    return std::string{number.get() == 8 ? "" : "it is not kept"};
  }};
  EXPECT_EQ(child.found(), "");
  EXPECT_EQ(&number.get(), mine);
  EXPECT_EQ(*mine, 7);
}

TEST(ClosedHandleTest, SaysWhyAndWhatToDo) {
  const Error moved = closed_handle("read", false);
  EXPECT_EQ(moved.code(), Code::kClosed);
  EXPECT_EQ(moved.reason(), Reason::kNone);
  EXPECT_EQ(moved.message(), "read: this handle was moved from: closed");
  const Error forked = closed_handle("read", true);
  EXPECT_EQ(forked.code(), Code::kClosed);
  EXPECT_EQ(forked.reason(), Reason::kForked);
  EXPECT_EQ(forked.message(),
            "read: closed: the handle belongs to the parent process, which made it before fork(); "
            "make a new Engine, Server or verbs::Device in this process, or fork before the first; "
            "a program that is started by exec needs neither");
}

}  // namespace
}  // namespace remora::detail
