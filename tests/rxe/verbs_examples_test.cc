// The examples of verbs/ run and say what they should; ibv_rc_pingpong, which is not ours, plays
// with one of them both ways.
#include "rxe_child.h"
#include "verbs_loopback.h"

namespace remora::test {
namespace {

#ifdef EXAMPLES
class VerbsExamples : public RxeTest {
 protected:
  static RxeChild example(const std::string& name, const std::vector<std::string>& arguments,
                          RxeChild::Errors errors = RxeChild::Errors::kInherited) {
    std::vector<std::string> command{EXAMPLES "/verbs_" + name};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return RxeChild{std::move(command), errors};
  }
  // What it printed; it must end well.
  static std::string output(RxeChild child) {
    std::string text = child.rest();
    EXPECT_EQ(child.wait(), 0) << text;
    return text;
  }
  [[nodiscard]] std::string gid_index() const {
    const auto device = verbs::devices().value().find(device_name_).value().open().value();
    return std::to_string(device.choose_gid().value().taken().value().index);
  }
};

TEST_F(VerbsExamples, DevinfoShowsTheDevice) {
  const std::string text = output(example("devinfo", {}));
  EXPECT_NE(text.find(device_name_ + " (index "), std::string::npos) << text;
  EXPECT_NE(text.find(": taken\n"), std::string::npos) << text;
  EXPECT_NE(text.find("a queue pair would use gid " + gid_index()), std::string::npos) << text;
}

TEST_F(VerbsExamples, LoopbackReadsWhatItWrote) {
  const std::string text = output(example("loopback", {device_name_}));
  EXPECT_NE(text.find("fetch-add id 3 ok\nread back: written\n"), std::string::npos) << text;
}

TEST_F(VerbsExamples, UnknownDeviceIsNamed) {
  auto child = example("loopback", {"mlx5_9"});
  EXPECT_EQ(child.rest(), "");  // it goes to stderr
  EXPECT_EQ(child.wait(), 1);
  auto told = example("loopback", {"mlx5_9"}, RxeChild::Errors::kMerged);
  const std::string text = told.rest();
  EXPECT_NE(text.find("mlx5_9: not found"), std::string::npos) << text;
  EXPECT_NE(text.find("'rdma link' lists the devices of this host"), std::string::npos) << text;
  EXPECT_EQ(told.wait(), 1);
}

TEST_F(VerbsExamples, DoorbellsAreCounted) {
  const std::string text = output(example("doorbell", {device_name_, "512"}));
  for (const char* const chain : {"chains of 1: ", "chains of 8: ", "chains of 64: "})
    EXPECT_NE(text.find(chain), std::string::npos) << text;
}

TEST_F(VerbsExamples, ConnectionWritesIntoItsServer) {
  auto server = example("connection", {"serve", address().host()});
  const auto port = server.line();
  ASSERT_TRUE(port && port->starts_with("port ")) << port.value_or("nothing");
  const std::string text =
      output(example("connection", {"write", address().host(), port->substr(5), "hello, server"}));
  EXPECT_NE(text.find("write id 1 ok"), std::string::npos) << text;
  const std::string told = output(std::move(server));
  EXPECT_NE(told.find("it wrote: hello, server\n"), std::string::npos) << told;
}

TEST_F(VerbsExamples, PingPongPlaysWithItself) {
  auto server = example("pingpong", {device_name_, "18601", "50"});
  const std::string text = output(example("pingpong", {device_name_, "18601", "50", "localhost"}));
  EXPECT_TRUE(text.starts_with("50 messages there and back")) << text;
  EXPECT_TRUE(output(std::move(server)).starts_with("50 messages there and back"));
}

TEST_F(VerbsExamples, PingPongPlaysWithRdmaCoresServer) {
  RxeChild server{
      {"ibv_rc_pingpong", "-d", device_name_, "-g", gid_index(), "-p", "18602", "-n", "50"}};
  const std::string text = output(example("pingpong", {device_name_, "18602", "50", "localhost"}));
  EXPECT_TRUE(text.starts_with("50 messages there and back")) << text;
  EXPECT_NE(output(std::move(server)).find("50 iters in"), std::string::npos);
}

TEST_F(VerbsExamples, PingPongServesRdmaCoresClient) {
  auto server = example("pingpong", {device_name_, "18603", "50"});
  std::string text;
  // It does not wait for its server.
  for (int tries = 0; tries < 50 && text.find("50 iters in") == std::string::npos; ++tries) {
    RxeChild client{{"ibv_rc_pingpong", "-d", device_name_, "-g", gid_index(), "-p", "18603", "-n",
                     "50", "localhost"}};
    text = client.rest();
    static_cast<void>(client.wait());
  }
  EXPECT_NE(text.find("50 iters in"), std::string::npos) << text;
  EXPECT_TRUE(output(std::move(server)).starts_with("50 messages there and back"));
}
#endif

}  // namespace
}  // namespace remora::test
