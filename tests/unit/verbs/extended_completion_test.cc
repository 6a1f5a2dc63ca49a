// Every field of an extended completion, and that it is absent where it was not asked for.
#include <arpa/inet.h>

#include "fake_verbs.h"

namespace remora::test {
namespace {

using verbs::CompletionFields;

class ExtendedFields : public FakeTest {
 protected:
  // `check` with the one completion of a queue that has `fields`.
  template <typename Check>
  void with(CompletionFields fields, const ibv_wc& raw, Check check) {
    const auto queue = open().create_completion_queue({.fields = fields}).value();
    fake_.completions = {raw};
    int seen = 0;
    for (const verbs::ExtendedCompletion& done : queue.start_poll().value()) {
      check(done);
      ++seen;
    }
    EXPECT_EQ(seen, 1);
  }
  static ibv_wc datagram() {
    ibv_wc raw{};
    raw.wr_id = 9;
    raw.opcode = IBV_WC_RECV;
    raw.byte_len = 104;
    raw.qp_num = 0x77;
    raw.src_qp = 0x88;
    raw.slid = 12;
    raw.sl = 3;
    raw.dlid_path_bits = 5;
    raw.wc_flags = IBV_WC_GRH | IBV_WC_WITH_IMM;
    raw.imm_data = htonl(42);
    return raw;
  }
};

TEST_F(ExtendedFields, AreReadWhereAskedFor) {
  using enum CompletionFields;
  with(kStandard | kTimestamp | kWallClock, datagram(), [](const verbs::ExtendedCompletion& done) {
    EXPECT_EQ(done.id(), 9U);
    EXPECT_EQ(done.opcode(), verbs::Opcode::kReceive);
    EXPECT_EQ(done.length_bytes(), 104U);
    EXPECT_EQ(done.immediate(), 42U);
    EXPECT_EQ(done.qp_number(), 0x77U);
    EXPECT_EQ(done.source_qp(), 0x88U);
    EXPECT_EQ(done.source_lid(), 12U);
    EXPECT_EQ(done.service_level(), 3);
    EXPECT_EQ(done.path_bits(), 5);
    EXPECT_TRUE(done.has_route_header());
    EXPECT_EQ(done.timestamp(), 4711U);
    EXPECT_EQ(done.wall_clock_ns(), 1'763'800'000U);
    EXPECT_FALSE(done.invalidated_rkey().has_value());
  });
}

TEST_F(ExtendedFields, AreAbsentWhereNotAskedFor) {
  with(CompletionFields::kTimestamp, datagram(), [](const verbs::ExtendedCompletion& done) {
    EXPECT_FALSE(done.length_bytes().has_value());
    EXPECT_FALSE(done.immediate().has_value());
    EXPECT_FALSE(done.qp_number().has_value());
    EXPECT_FALSE(done.source_qp().has_value());
    EXPECT_FALSE(done.source_lid().has_value());
    EXPECT_FALSE(done.service_level().has_value());
    EXPECT_FALSE(done.path_bits().has_value());
    EXPECT_FALSE(done.wall_clock_ns().has_value());
    EXPECT_TRUE(done.has_route_header()) << "a flag, told without a field";
  });
}

TEST_F(ExtendedFields, InvalidatedKeyIsNoImmediate) {
  ibv_wc raw = datagram();
  raw.wc_flags = IBV_WC_WITH_INV;
  raw.invalidated_rkey = 0x1234;
  with(CompletionFields::kStandard, raw, [](const verbs::ExtendedCompletion& done) {
    EXPECT_EQ(done.invalidated_rkey(), 0x1234U);
    EXPECT_FALSE(done.immediate().has_value());
    EXPECT_FALSE(done.has_route_header());
  });
  with(CompletionFields::kLength, raw, [](const verbs::ExtendedCompletion& done) {
    EXPECT_FALSE(done.invalidated_rkey().has_value());
  });
}

}  // namespace
}  // namespace remora::test
