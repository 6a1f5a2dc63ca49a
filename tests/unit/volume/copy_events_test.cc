// What a repair tells of the copies that it makes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <string_view>

#include <remora/volume/volume_options.h>

#include "mirror_work.h"
#include "unit/volume/fake_mirror.h"

namespace remora::volume::test {
namespace {

using ::testing::IsEmpty;

Managed<void> make_copies(FakeMirror& mirror) {
  const VolumeLayout layout = mirror.layout();
  const MaintenanceOptions options;
  detail::MirrorWork work{mirror, mirror, layout, options};
  return work.restore_copies();
}

void expect_event(const VolumeEvent& event, VolumeEventKind kind, const std::string& server) {
  EXPECT_EQ(event.kind, kind);
  EXPECT_EQ(event.group, 0U);
  EXPECT_EQ(event.server, server);
}

TEST(CopyEvents, ACopyIsToldAtItsBeginningAndItsEnd) {
  FakeMirror mirror{3, 1, 2};
  ASSERT_TRUE(make_copies(mirror));
  EXPECT_THAT(mirror.events, IsEmpty());
  mirror.lose_server("s0");
  ASSERT_TRUE(make_copies(mirror));
  ASSERT_EQ(mirror.events.size(), 2U);
  expect_event(mirror.events[0], VolumeEventKind::kCopyBegun, "s2");
  expect_event(mirror.events[1], VolumeEventKind::kCopyDone, "s2");
}

TEST(CopyEvents, ACopyThatFailsIsToldWithItsError) {
  for (const std::string_view step : {"copy 0/1", "in sync 0"}) {
    FakeMirror mirror{3, 1, 2};
    mirror.lose_server("s0");
    mirror.before_step = [&](std::string_view name) -> Status {
      if (name == step) return Error{Code::kConnectionLost, "member"};
      return {};
    };
    ASSERT_TRUE(make_copies(mirror));
    ASSERT_EQ(mirror.events.size(), 2U) << step;
    expect_event(mirror.events[0], VolumeEventKind::kCopyBegun, "s2");
    expect_event(mirror.events[1], VolumeEventKind::kCopyFailed, "s2");
    EXPECT_EQ(mirror.events[1].error.code(), Code::kConnectionLost);
  }
}

TEST(CopyEvents, AMemberThatNeverEntersIsNoCopy) {
  FakeMirror mirror{3, 1, 2};
  mirror.lose_server("s0");
  mirror.before_step = [](std::string_view name) -> Status {
    if (name.starts_with("add ")) return Error{Code::kTimedOut, "group of a mirror"};
    return {};
  };
  ASSERT_TRUE(make_copies(mirror));
  EXPECT_THAT(mirror.events, IsEmpty());
}

}  // namespace
}  // namespace remora::volume::test
