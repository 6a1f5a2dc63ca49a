#include <cerrno>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <sstream>

#include <remora/result.h>

namespace remora {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return Error{Code::kInvalidArgument, "half"}.with_limit(3, 2);
  return value / 2;
}

TEST(Result, ValueOfSuccess) {
  EXPECT_TRUE(half(4).ok());
  EXPECT_EQ(half(4).value(), 2);
}

TEST(Result, ValueOfErrorThrowsExceptionThatCarriesIt) {
  try {
    (void)half(3).value();
    FAIL() << "value() of an error must throw";
  } catch (const Exception& exception) {
    EXPECT_EQ(exception.error().code(), Code::kInvalidArgument);
    EXPECT_STREQ(exception.what(), "half: invalid argument (asked 3, allowed 2)");
  }
}

TEST(Result, HoldsMoveOnlyValues) {
  Result<std::unique_ptr<int>> result{std::make_unique<int>(7)};
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 7);
}

TEST(Status, DefaultIsSuccess) { EXPECT_TRUE(Status{}.ok()); }

TEST(Error, MessageNamesOperationSubjectErrnoAndRemedy) {
  const Error error =
      Error{Code::kAddressInUse, "bind"}.with_subject("127.0.0.1:7471").with_errno(EADDRINUSE);
  const std::string text = error.message();
  EXPECT_NE(text.find("bind: 127.0.0.1:7471: address in use: Address already in use"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("choose another port"), std::string::npos) << text;
}

TEST(Error, MessageNamesServerRegionOffsetAndLength) {
  const Error error = Error{Code::kTimedOut, "read"}
                          .with_server("storage7:7471")
                          .with_subject("cache")
                          .with_place(4096, 64)
                          .with_reason(Reason::kExpired);
  EXPECT_EQ(
      error.message(),
      "read: storage7:7471/cache, offset 4096, length 64: timed out: its own deadline passed");
  EXPECT_EQ(error.server(), "storage7:7471");
  EXPECT_TRUE(error.has_place());
  const Error outside = Error{Code::kOutOfRange, "read"}
                            .with_server("storage7:7471")
                            .with_subject("cache")
                            .with_place(4090, 8)
                            .with_limit(4098, 4096);
  EXPECT_EQ(outside.message(),
            "read: storage7:7471/cache, offset 4090, length 8: out of range (the region has 4096 "
            "bytes); offset and length have to lie within the region");
}

TEST(Error, MessageNamesAServerOnce) {
  const Error refused = Error{Code::kConnectionRefused, "connect over tcp"}.with_server("[::1]:9");
  EXPECT_EQ(refused.with_subject("[::1]:9").message().find("[::1]:9"),
            refused.with_subject("[::1]:9").message().rfind("[::1]:9"));
  EXPECT_EQ(refused.with_server("host:9")
                .with_subject("192.0.2.1:9")
                .message()
                .find("connect over tcp: host:9: 192.0.2.1:9: connection refused"),
            0U);
  EXPECT_EQ(refused.message().find("connect over tcp: [::1]:9: connection refused"), 0U);
}

TEST(Error, LongServerIsCutInItsMiddle) {
  const Error error =
      Error{Code::kSystem}.with_server("first-label." + std::string(200, 'x') + ".example:65535");
  EXPECT_EQ(error.server().size(), Error::kServerBytes);
  EXPECT_TRUE(error.server().starts_with("first-label.xxx")) << error.server();
  EXPECT_TRUE(error.server().ends_with("...xample:65535")) << error.server();
}

/// Programs show these errors to users, which cannot add flags to a foreign program.
TEST(Error, RemediesNameNoFlagsOfTheCommandLineAndNoDeviceForTcp) {
  const auto expect_plain = [](const Error& error) {
    for (const char* flag :
         {"--now", "--when-unused", "--allow", "--shm", "--atomics", "--client", "--key-file"})
      EXPECT_EQ(error.remedy().find(flag), std::string_view::npos) << error;
  };
  for (int code = 0; code <= static_cast<int>(Code::kInternal); ++code) {
    const auto of = static_cast<Code>(code);
    for (const Error& error :
         {Error{of, "remove"}, Error{of, "create"}, Error{of, "open"}, Error{of, "fence"},
          Error{of, "key file"}, Error{of, "open over shm (the region was not created for it)"},
          Error{of, "connect over tcp"}, Error{of, "find the server over shm"}, Error{of, "read"}})
      expect_plain(error);
    EXPECT_EQ(Error(of, "connect over tcp").remedy().find("ibv_"), std::string_view::npos);
    EXPECT_EQ(Error(of, "getaddrinfo").remedy().find("ibv_"), std::string_view::npos);
  }
  for (int reason = 0; reason <= static_cast<int>(kReasonLast); ++reason)
    expect_plain(Error{Code::kSystem, "open"}.with_reason(static_cast<Reason>(reason)));
}

TEST(Error, LongSubjectIsCutAndSaysSo) {
  const Error error = Error{Code::kNotFound}.with_subject(std::string(200, 'a'));
  EXPECT_EQ(error.subject().size(), Error::kSubjectBytes);
  EXPECT_TRUE(error.subject().ends_with("a..."));
}

TEST(Error, ControlBytesOfAHostileSubjectAreNotPrinted) {
  EXPECT_EQ(Error{Code::kNotFound}.with_subject("a\x1b[31m\nb").subject(), "a?[31m?b");
}

TEST(Error, CompletionStatusIsPrintedWithVendorError) {
  std::ostringstream out;
  out << Error{Code::kAccessRefused, "read"}.with_completion(CompletionStatus::kRemoteAccessError,
                                                             0x89);
  EXPECT_EQ(out.str(), "read: access refused: remote access error, vendor error 137");
}

TEST(Error, RemedyOfLockedMemorySaysWhoseLimitItIs) {
  const auto remedy = [](const Error& error) {
    return std::string{error.with_reason(Reason::kMemlock).remedy()};
  };
  const auto begins = [](const std::string& text, const char* with) {
    EXPECT_EQ(text.find(with), 0U) << text;
  };
  const Error refused = Error{Code::kOutOfMemory, "open"}.with_subject("t1: 4096 bytes are pinned");
  begins(remedy(refused.with_server("storage7:7471")), "raise the server's limit");
  begins(remedy(refused), "raise this process's limit");  // in the server's own log
  const Error pinning{Code::kOutOfMemory, "ibv_reg_mr"};
  begins(remedy(pinning), "raise this process's limit");
  begins(remedy(pinning.with_server("storage7:7471")), "raise this process's limit");
  const Error read = Error{Code::kOutOfMemory, "read"}.with_server("storage7:7471");
  begins(remedy(read.with_place(0, 4096)), "raise this process's limit");
}

TEST(Error, RemedyFollowsReasonThenOperationThenCode) {
  const auto remedy = [](const Error& error) { return std::string{error.remedy()}; };
  const auto names = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
  };
  names(remedy(Error{Code::kOutOfMemory, "create"}.with_reason(Reason::kPoolFull)), "pool.size");
  names(remedy(Error{Code::kWrongAtomicDomain, "fetch_add"}), "remora stat");
  names(remedy(Error{Code::kWrongAtomicDomain, "fetch_add"}.with_reason(Reason::kNoAtomics)),
        "RegionSpec::atomic_domain");
  names(remedy(Error{Code::kMisaligned, "fetch_add"}), "a multiple of 8");
  names(remedy(Error{Code::kNoRight, "open"}), "access list");
  names(remedy(Error{Code::kNotFound, "ibv_get_device_list"}), "?transport=shm");
  names(remedy(Error{Code::kNotFound, "rdma_create_event_channel"}), "rdma_ucm");
  names(remedy(Error{Code::kNotFound, "getaddrinfo"}), "getent");
  names(remedy(Error{Code::kConnectionRefused, "connect over shm"}), "REMORA_RUNTIME_DIR");
  names(remedy(Error{Code::kConnectionRefused, "rdma_connect"}), "that port");
  names(remedy(Error{Code::kPermissionDenied, "socket folder"}.with_reason(Reason::kOtherUser)),
        "0700");
  names(remedy(Error{Code::kLimitExceeded, "create"}.with_subject("limits.regions_max")),
        "server's file");
  names(remedy(Error{Code::kInvalidArgument, "URI port"}), "65535");
  names(remedy(Error{Code::kWouldBlock, "ibv_post_send"}), "take completions first");
  EXPECT_EQ(remedy(Error{Code::kNotFound, "open file"}), "");
  names(remedy(Error{Code::kUnreachable, "bind"}), "listen.address");
  names(remedy(Error{Code::kUnsupported, "resize"}.with_subject("r: memory for shm is sealed")),
        "another region");
  names(remedy(Error{Code::kOutOfRange, "fetch_add"}), "within the region");
  EXPECT_EQ(remedy(Error{Code::kOutOfRange, "checked_slice"}), "");
  names(remedy(Error{Code::kNotFound, "key file"}), "remora key generate");
  names(remedy(Error{Code::kLimitExceeded, "create"}.with_subject("bytes left of the quota of a")),
        "remora usage");
  // What has run out comes before what the call may otherwise want.
  names(remedy(Error{Code::kProvider, "rdma_create_event_channel"}.with_errno(EMFILE)),
        "ulimit -n");
  names(remedy(Error{Code::kSystem, "epoll_create1"}.with_errno(ENFILE)), "fs.file-max");
}

TEST(Error, RefusedVerbsArgumentsHaveARemedyOfTheirOwn) {
  const auto names = [](const Error& error, const char* part) {
    EXPECT_NE(error.remedy().find(part), std::string_view::npos)
        << part << " is not in: " << error.remedy();
  };
  const auto invalid = [](Operation operation, std::string_view subject) {
    return Error{Code::kInvalidArgument, operation}.with_subject(subject);
  };
  names(invalid("ibv_query_port", "port of rxe0"), "ports count from 1");
  names(invalid("ibv_reg_mr", "no bytes at 0x0"), "at least one byte");
  names(invalid("MrCache::acquire", "bytes at 0x1000 wrap around"), "same buffer");
  names(invalid("ibv_create_cq", "depth"), "at least one entry");
  names(invalid("CompletionQueue::wait", "no channel of its own"), "CompletionQueueOptions");
  names(invalid("ibv_start_poll", "a queue without fields"), "CompletionQueueOptions::fields");
  names(invalid("QueuePairBuilder::build", "timeout"), "queue_pair.h");
  names(invalid("QueuePairBuilder::build", "rxe0 port 1 is down"), "ip link set");
  names(invalid("rdma_connect", "no queue pair"), "create_queue_pair()");
  names(invalid("ibv_alloc_pd", "no device"), "empty or of another device");
  names(invalid("Address::parse", "10.0.0"), "192.0.2.1");
  names(invalid("Address::resolve", ""), "host's name");
  names(invalid("ChainStorage::allocate", ""), "one slice");
  names(invalid("Device::borrow", ""), "open device");
  names(invalid("MrCache::create", "a budget of 0"), "out of its range");
  names(Error{Code::kLimitExceeded, "MrCache::acquire"}, "raise the budget");
  names(Error{Code::kOutOfMemory, "MrCache::acquire"}, "drop leases");
  EXPECT_EQ(Error(Code::kInvalidArgument, "half").remedy(), "");
}

TEST(Error, RefusedChainsSayWhatToAskFor) {
  const auto names = [](Code code, std::string_view subject, const char* part) {
    const Error error = Error{code, "Batch::post"}.with_subject(subject);
    EXPECT_NE(error.remedy().find(part), std::string_view::npos)
        << part << " is not in: " << error.remedy();
  };
  names(Code::kLimitExceeded, "request 3: inline bytes", "QueuePairBuilder::inline_bytes");
  names(Code::kLimitExceeded, "request 3: inline read", "only sends and writes");
  names(Code::kLimitExceeded, "request 3: slices", "send_sge");
  names(Code::kLimitExceeded, "request 64", "batch_requests");
  names(Code::kOutOfRange, "request 0", "checked_slice");
  names(Code::kInvalidArgument, "request 0", "8 local bytes");
  names(Code::kBusy, "request 0", "storage of its own");
  names(Code::kClosed, "request 0", "allocate one");
  names(Code::kMisaligned, "request 0", "multiple of 8");
}

TEST(Error, RefusedInlineBytesPointToNoCommand) {
  const Error refused = Error{Code::kProvider, "ibv_create_qp"}.with_errno(EINVAL);
  const Error inlined = refused.with_subject("asked for 4096 inline bytes on rxe0");
  EXPECT_EQ(inlined.remedy().find("ibv_devinfo"), std::string_view::npos) << inlined;
  EXPECT_NE(inlined.remedy().find("capabilities()"), std::string_view::npos) << inlined;
  EXPECT_NE(refused.with_subject("rxe0").remedy().find("ibv_devinfo"), std::string_view::npos);
}

TEST(Error, EveryCodeReasonAndStatusHasItsOwnText) {
  std::set<std::string_view> texts;
  for (int i = 0; i <= static_cast<int>(Code::kInternal); ++i)
    EXPECT_TRUE(texts.insert(to_string(static_cast<Code>(i))).second) << i;
  texts.clear();
  for (int i = 0; i <= static_cast<int>(kReasonLast); ++i)
    EXPECT_TRUE(texts.insert(to_string(static_cast<Reason>(i))).second) << i;
  texts.clear();
  for (int i = 0; i <= static_cast<int>(CompletionStatus::kGeneral); ++i)
    EXPECT_TRUE(texts.insert(to_string(static_cast<CompletionStatus>(i))).second) << i;
}

}  // namespace
}  // namespace remora
