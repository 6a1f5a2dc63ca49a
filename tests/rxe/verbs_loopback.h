#pragma once

/// A queue pair connected to itself: every operation without a second process.

#include "rxe_fixture.h"

namespace remora::test {

class VerbsLoopback : public RxeTest {
 protected:
  void SetUp() override {
    RxeTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    auto device = verbs::devices().value().find(device_name_).value().open();
    ASSERT_OK(device);
    auto rig = Rig::create(std::move(*device));
    ASSERT_OK(rig);
    rig_.emplace(std::move(*rig));
    connect(rig_->builder());
  }
  void TearDown() override {
    pair_.reset();
    rig_.reset();
    RxeTest::TearDown();
  }
  void connect(const verbs::QueuePairBuilder<verbs::Rc>& builder) {
    pair_.reset();
    auto prepared = builder.build();
    ASSERT_OK(prepared);
    const verbs::Endpoint self = prepared->endpoint();
    // Over the wire form, as two processes would.
    const auto copy = verbs::Endpoint::from_wire(self.to_wire());
    ASSERT_OK(copy);
    auto pair = std::move(*prepared).connect(*copy);
    ASSERT_OK(pair);
    pair_.emplace(std::move(*pair));
  }
  [[nodiscard]] verbs::LocalSlice local(std::uint64_t offset, std::uint64_t length) const {
    return rig_->memory->slice(offset, length);
  }
  [[nodiscard]] verbs::RemoteSlice remote(std::uint64_t offset, std::uint64_t length) const {
    return rig_->memory->remote(offset, length);
  }
  [[nodiscard]] bool same(std::size_t a, std::size_t b, std::size_t length) {
    return std::memcmp(rig_->at(a), rig_->at(b), length) == 0;
  }

  std::optional<Rig> rig_;
  std::optional<verbs::QueuePair<verbs::Rc>> pair_;
};

}  // namespace remora::test
