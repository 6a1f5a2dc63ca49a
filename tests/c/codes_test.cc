// The numbers of the C API are those of the library, one more for codes, and stay what they are.

#include <gtest/gtest.h>
#include <string>
#include <string_view>

#include <remora/engine/engine.h>
#include <remora/remora_c.h>
#include <remora/result.h>

namespace remora::test {
namespace {

consteval bool same(Code code, int number) { return static_cast<int>(code) + 1 == number; }
consteval bool same(Reason reason, int number) { return static_cast<int>(reason) == number; }

static_assert(same(Code::kInvalidArgument, REMORA_INVALID_ARGUMENT) &&
              REMORA_INVALID_ARGUMENT == 1);
static_assert(same(Code::kOutOfRange, REMORA_OUT_OF_RANGE) && REMORA_OUT_OF_RANGE == 2);
static_assert(same(Code::kMisaligned, REMORA_MISALIGNED) && REMORA_MISALIGNED == 3);
static_assert(same(Code::kNoRight, REMORA_NO_RIGHT) && REMORA_NO_RIGHT == 4);
static_assert(same(Code::kWrongAtomicDomain, REMORA_WRONG_ATOMIC_DOMAIN));
static_assert(same(Code::kUnsupported, REMORA_UNSUPPORTED) && REMORA_UNSUPPORTED == 6);
static_assert(same(Code::kLimitExceeded, REMORA_LIMIT_EXCEEDED));
static_assert(same(Code::kOutOfMemory, REMORA_OUT_OF_MEMORY) && REMORA_OUT_OF_MEMORY == 8);
static_assert(same(Code::kPermissionDenied, REMORA_PERMISSION_DENIED));
static_assert(same(Code::kNotFound, REMORA_NOT_FOUND) && REMORA_NOT_FOUND == 10);
static_assert(same(Code::kUnknownRegion, REMORA_UNKNOWN_REGION));
static_assert(same(Code::kAlreadyExists, REMORA_ALREADY_EXISTS));
static_assert(same(Code::kBusy, REMORA_BUSY) && REMORA_BUSY == 13);
static_assert(same(Code::kAddressInUse, REMORA_ADDRESS_IN_USE));
static_assert(same(Code::kUnreachable, REMORA_UNREACHABLE));
static_assert(same(Code::kConnectionRefused, REMORA_CONNECTION_REFUSED));
static_assert(same(Code::kConnectionLost, REMORA_CONNECTION_LOST) && REMORA_CONNECTION_LOST == 17);
static_assert(same(Code::kProtocol, REMORA_PROTOCOL));
static_assert(same(Code::kAccessRefused, REMORA_ACCESS_REFUSED));
static_assert(same(Code::kStaleRegion, REMORA_STALE_REGION) && REMORA_STALE_REGION == 20);
static_assert(same(Code::kTimedOut, REMORA_TIMED_OUT) && REMORA_TIMED_OUT == 21);
static_assert(same(Code::kCancelled, REMORA_CANCELLED));
static_assert(same(Code::kIndeterminate, REMORA_INDETERMINATE) && REMORA_INDETERMINATE == 23);
static_assert(same(Code::kWouldBlock, REMORA_WOULD_BLOCK) && REMORA_WOULD_BLOCK == 24);
static_assert(same(Code::kClosed, REMORA_CLOSED) && REMORA_CLOSED == 25);
static_assert(same(Code::kProvider, REMORA_PROVIDER));
static_assert(same(Code::kSystem, REMORA_SYSTEM) && REMORA_SYSTEM == 27);
static_assert(same(Code::kInternal, REMORA_INTERNAL) && REMORA_INTERNAL == 28);

static_assert(same(Reason::kNone, REMORA_REASON_NONE) && REMORA_REASON_NONE == 0);
static_assert(same(Reason::kFenced, REMORA_REASON_FENCED) && REMORA_REASON_FENCED == 1);
static_assert(same(Reason::kRevoked, REMORA_REASON_REVOKED));
static_assert(same(Reason::kOutOfRange, REMORA_REASON_OUT_OF_RANGE));
static_assert(same(Reason::kNoRight, REMORA_REASON_NO_RIGHT));
static_assert(same(Reason::kPeerGone, REMORA_REASON_PEER_GONE) && REMORA_REASON_PEER_GONE == 5);
static_assert(same(Reason::kLaneBroken, REMORA_REASON_LANE_BROKEN));
static_assert(same(Reason::kDraining, REMORA_REASON_DRAINING));
static_assert(same(Reason::kVersion, REMORA_REASON_VERSION));
static_assert(same(Reason::kAuthentication, REMORA_REASON_AUTHENTICATION));
static_assert(same(Reason::kMemlock, REMORA_REASON_MEMLOCK) && REMORA_REASON_MEMLOCK == 10);
static_assert(same(Reason::kPoolFull, REMORA_REASON_POOL_FULL));
static_assert(same(Reason::kNoAtomics, REMORA_REASON_NO_ATOMICS));
static_assert(same(Reason::kNotOffered, REMORA_REASON_NOT_OFFERED));
static_assert(same(Reason::kUnknownDevice, REMORA_REASON_UNKNOWN_DEVICE));
static_assert(same(Reason::kOtherUser, REMORA_REASON_OTHER_USER));
static_assert(same(Reason::kWorldWritable, REMORA_REASON_WORLD_WRITABLE));
static_assert(same(Reason::kGidUnset, REMORA_REASON_GID_UNSET));
static_assert(same(Reason::kGidFamily, REMORA_REASON_GID_FAMILY));
static_assert(same(Reason::kGidScope, REMORA_REASON_GID_SCOPE));
static_assert(same(Reason::kNoNeighbour, REMORA_REASON_NO_NEIGHBOUR));
static_assert(same(Reason::kNewMemory, REMORA_REASON_NEW_MEMORY));
static_assert(same(Reason::kLapsed, REMORA_REASON_LAPSED) && REMORA_REASON_LAPSED == 22);
static_assert(same(Reason::kSilent, REMORA_REASON_SILENT));
static_assert(same(Reason::kTooOften, REMORA_REASON_TOO_OFTEN));
static_assert(same(Reason::kNoThread, REMORA_REASON_NO_THREAD));
static_assert(same(Reason::kUnreachable, REMORA_REASON_UNREACHABLE));
static_assert(same(Reason::kExpired, REMORA_REASON_EXPIRED) && REMORA_REASON_EXPIRED == 27);
static_assert(same(Reason::kLaneVictim, REMORA_REASON_LANE_VICTIM));
static_assert(same(Reason::kZeroLength, REMORA_REASON_ZERO_LENGTH));
static_assert(same(Reason::kNullPointer, REMORA_REASON_NULL_POINTER));
static_assert(same(Reason::kEmptySlot, REMORA_REASON_EMPTY_SLOT));
static_assert(same(Reason::kOutsideMemory, REMORA_REASON_OUTSIDE_MEMORY));
static_assert(same(Reason::kPieces, REMORA_REASON_PIECES));
static_assert(same(Reason::kHeld, REMORA_REASON_HELD));
static_assert(same(Reason::kNotRemora, REMORA_REASON_NOT_REMORA));
static_assert(same(Reason::kHttp, REMORA_REASON_HTTP));
static_assert(same(Reason::kLocalShortage, REMORA_REASON_LOCAL_SHORTAGE));
static_assert(same(Reason::kForked, REMORA_REASON_FORKED) && REMORA_REASON_FORKED == 38);
static_assert(same(kReasonLast, REMORA_REASON_FORKED));

static_assert(REMORA_PIECES_MAX == kMaxPieces);

// Structs without a size never change, others only grow.
static_assert(sizeof(remora_completion) == 32 && sizeof(remora_piece) == 24);
static_assert(sizeof(remora_extent) == 16 && sizeof(remora_region_access) == 80);
static_assert(sizeof(remora_error) >= 1032 && sizeof(remora_engine_options) >= 176);
static_assert(sizeof(remora_region_info) >= 304 && sizeof(remora_region_spec) >= 80);
static_assert(sizeof(remora_queue_options) >= 24 && sizeof(remora_server_info) >= 192);

TEST(CodesTest, EachHasItsName) {
  for (int code = REMORA_INVALID_ARGUMENT; code <= REMORA_INTERNAL; ++code)
    EXPECT_EQ(remora_code_name(code), to_string(static_cast<Code>(code - 1)));
  for (int reason = REMORA_REASON_NONE; reason <= REMORA_REASON_FORKED; ++reason)
    EXPECT_EQ(remora_reason_name(reason), to_string(static_cast<Reason>(reason)));
  EXPECT_STREQ(remora_code_name(-1), "unknown code");
  EXPECT_STREQ(remora_code_name(29), "unknown code");
  EXPECT_STREQ(remora_reason_name(-1), "unknown reason");
  EXPECT_STREQ(remora_reason_name(39), "unknown reason");
}

TEST(CodesTest, DefaultsOfAnEngineAreThoseOfTheLibrary) {
  const EngineOptions expected;
  remora_engine_options options;
  ASSERT_EQ(remora_engine_options_init(&options, sizeof(options)), REMORA_OK);
  EXPECT_EQ(options.size, sizeof(options));
  EXPECT_EQ(options.operation_deadline_ns, expected.operation_deadline.count());
  EXPECT_EQ(options.control_deadline_ns, expected.control_deadline.count());
  EXPECT_EQ(options.reconnect_for_ns, expected.reconnect_for.count());
  EXPECT_EQ(options.connect_for_ns, expected.connect_for.count());
  EXPECT_EQ(options.spin_ns, expected.spin.count());
  EXPECT_EQ(options.lane_depth, expected.lane_depth);
  EXPECT_EQ(options.lanes, expected.lanes);
  EXPECT_EQ(options.bounce_slot_bytes, expected.bounce_slot_bytes);
  EXPECT_EQ(options.mr_cache_bytes, expected.mr_cache_bytes);
  EXPECT_EQ(options.on_session, nullptr);
  EXPECT_EQ(options.populate, static_cast<std::uint32_t>(expected.populate));
  EXPECT_EQ(options.rails, nullptr);
  EXPECT_EQ(options.rdma, nullptr);
}

}  // namespace
}  // namespace remora::test
