// Wrong arguments of the functions that administer a server.

#include <cstdint>

#include "bad_input_test.h"

namespace remora::test {
namespace {

TEST_F(BadInputTest, WrongArgumentsOfTheAdministration) {
  const auto state_of = [&](auto* call, auto* of) {
    remora_drain_state state{};
    state.size = 8;
    return call(of, &state, &error_);
  };
  expect(REMORA_INVALID_ARGUMENT, remora_session_ping(nullptr, nullptr, &error_), "remora_session");
  expect(REMORA_INVALID_ARGUMENT,
         remora_session_ping(session_, misaligned<std::uint64_t>(), &error_), "not aligned");
  expect(REMORA_INVALID_ARGUMENT, remora_session_sessions(session_, nullptr, &error_), "list");
  expect(REMORA_INVALID_ARGUMENT, remora_server_sessions(server_, nullptr, &error_), "list");
  expect(REMORA_NOT_FOUND, remora_session_end_session(session_, 0, &error_), "0");
  expect(REMORA_NOT_FOUND, remora_server_end_session(server_, 0, &error_), "0");
  expect(REMORA_INVALID_ARGUMENT, remora_session_drain_state(session_, nullptr, &error_), "state");
  expect(REMORA_INVALID_ARGUMENT, remora_server_drain_state(server_, nullptr, &error_), "state");
  // A call with a wrong struct neither begins nor ends a drain.
  expect(REMORA_INVALID_ARGUMENT, state_of(remora_session_drain, session_), "state");
  expect(REMORA_INVALID_ARGUMENT, state_of(remora_server_drain, server_), "state");
  remora_drain_state state{};
  state.size = sizeof(state);
  ASSERT_EQ(remora_server_drain_state(server_, &state, &error_), REMORA_OK);
  EXPECT_EQ(state.draining, 0U);
  ASSERT_EQ(remora_server_drain(server_, nullptr, &error_), REMORA_OK);
  expect(REMORA_INVALID_ARGUMENT, state_of(remora_session_end_drain, session_), "state");
  expect(REMORA_INVALID_ARGUMENT, state_of(remora_server_end_drain, server_), "state");
  ASSERT_EQ(remora_session_drain_state(session_, &state, &error_), REMORA_OK);
  EXPECT_EQ(state.draining, 1U);
  expect(REMORA_BUSY, open(uri("demo")), "drain");
}

TEST_F(BadInputTest, ListsOfSessions) {
  remora_session_list* list = nullptr;
  ASSERT_EQ(remora_session_sessions(session_, &list, &error_), REMORA_OK) << error_.message;
  EXPECT_EQ(remora_session_list_count(list), 1U);
  Newer<remora_session_info> info;
  info.known.size = sizeof(info);
  info.tail.fill(0xee);
  ASSERT_EQ(remora_session_list_get(list, 0, &info.known, &error_), REMORA_OK);
  EXPECT_EQ(info.known.own, 1U);
  EXPECT_EQ(info.known.transport, static_cast<std::uint32_t>(REMORA_TRANSPORT_TCP));
  EXPECT_EQ(info.tail[0], 0xee);
  expect(REMORA_OUT_OF_RANGE, remora_session_list_get(list, 1, &info.known, &error_), "index");
  expect(REMORA_INVALID_ARGUMENT, remora_session_list_get(list, 0, nullptr, &error_), "info");
  expect(REMORA_INVALID_ARGUMENT,
         remora_session_list_get(reinterpret_cast<remora_session_list*>(session_), 0, &info.known,
                                 &error_),
         "a handle of another kind");
  remora_session_list_free(list);
  EXPECT_EQ(remora_session_list_count(list), 0U);
  expect(REMORA_CLOSED, remora_session_list_get(list, 0, &info.known, &error_), "freed");
  remora_session_list_free(nullptr);
  EXPECT_EQ(remora_session_list_count(nullptr), 0U);
}

}  // namespace
}  // namespace remora::test
