// The words of the doctor on memory: what may be pinned, huge pages, userfaultfd, memory nodes.

#include "doctor/pins.h"
#include "doctor_machine.h"

namespace remora::apps::doctor {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class DoctorMemoryTest : public DoctorTest {
 protected:
  void set_limit(std::uint64_t soft_mebibytes, std::uint64_t hard_mebibytes) {
    calls.memory = {.soft = soft_mebibytes << 20U, .hard = hard_mebibytes << 20U};
  }
  [[nodiscard]] Finding locked(const Needs& needs) const {
    return finding_of(check_locked_memory(machine(), needs, devices()), "memlock");
  }
  [[nodiscard]] Finding lock_capability() const {
    return finding_of(check_lock_capability(machine(), {}), "ipc-lock");
  }
  [[nodiscard]] Finding huge_pages(const config::ServerConfig& pool) const {
    return finding_of(check_huge_pages(machine(), {.server = &pool}), "huge-pages");
  }
  [[nodiscard]] Finding userfaultfd() const {
    return finding_of(check_userfaultfd(machine()), "userfaultfd");
  }
};

TEST_F(DoctorMemoryTest, UnlimitedIsGreen) {
  add_rxe();
  const Finding finding = locked({});
  EXPECT_EQ(finding.colour, Colour::kGreen);
  EXPECT_EQ(finding.found,
            "locked memory: soft limit unlimited, hard limit unlimited; a client with one session "
            "pins 2624KiB");
}

TEST_F(DoctorMemoryTest, LimitBelowOneSessionIsRed) {
  add_rxe();
  set_limit(8, 8);
  const auto pool = server(64);
  const Finding finding = locked({.server = &pool});
  EXPECT_EQ(finding.colour, Colour::kRed);
  EXPECT_THAT(finding.found, StartsWith("locked memory: soft limit 8MiB, hard limit 8MiB; the "
                                        "server pins 65856KiB for one session that has all of the "
                                        "pool open, and "));
  EXPECT_THAT(finding.found, HasSubstr("for limits.sessions_max (1024) such sessions"));
  EXPECT_THAT(finding.why, HasSubstr("opening a region over rdma fails (kMemlock)"));
  EXPECT_THAT(finding.command, HasSubstr("LimitMEMLOCK=infinity"));
  EXPECT_THAT(finding.command, HasSubstr("'UsePAM yes' in /etc/ssh/sshd_config"));
}

TEST_F(DoctorMemoryTest, LimitForSomeSessionsIsYellow) {
  add_rxe();
  set_limit(128, 128);
  const auto pool = server(64);
  const Finding finding = locked({.server = &pool});
  EXPECT_EQ(finding.colour, Colour::kYellow);
  EXPECT_EQ(finding.why, "sessions beyond that cannot open their regions over rdma (kMemlock)");
}

TEST_F(DoctorMemoryTest, SoftLimitIsRaisedToTheHardOne) {
  add_rxe();
  set_limit(1, 64);
  EXPECT_EQ(locked({}).command, "ulimit -l 65536");
  calls.memory.hard = kUnlimited;
  EXPECT_EQ(locked({}).command, "ulimit -l unlimited");
}

TEST_F(DoctorMemoryTest, SmallLimitMattersNotWithoutADevice) {
  set_limit(1, 1);
  const Finding finding = locked({});
  EXPECT_EQ(finding.colour, Colour::kGreen);
  EXPECT_THAT(finding.found, HasSubstr("there is no RDMA device that would need it"));
}

TEST_F(DoctorMemoryTest, CapabilityLiftsTheLimit) {
  add_rxe();
  set_limit(1, 1);
  put("/proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\n");
  put("/proc/self/uid_map", "         0          0 4294967295\n");
  const Finding finding = locked({});
  EXPECT_EQ(finding.colour, Colour::kGreen);
  EXPECT_THAT(finding.found, HasSubstr("CAP_IPC_LOCK lifts the limit for this user"));
}

TEST_F(DoctorMemoryTest, CapabilityOfAUserNamespaceIsInert) {
  add_rxe();
  set_limit(1, 1);
  put("/proc/self/status", "CapEff:\t0000000000004000\n");
  put("/proc/self/uid_map", "         0     100000      65536\n");
  EXPECT_EQ(locked({}).colour, Colour::kRed);
  const Finding finding = lock_capability();
  EXPECT_EQ(finding.colour, Colour::kYellow);
  EXPECT_EQ(finding.found, "CAP_IPC_LOCK is effective in a user namespace only");
}

TEST_F(DoctorMemoryTest, CapabilityOfAContainerIsInertForANormalUser) {
  set_limit(1, 1);
  put("/.dockerenv", "");
  put("/proc/self/status", "CapEff:\t0000000000000000\nCapBnd:\t0000000000004000\n");
  const Finding finding = lock_capability();
  EXPECT_EQ(finding.found,
            "CAP_IPC_LOCK was given to this container, and a user other than root does not have "
            "it");
  EXPECT_EQ(finding.command, "start the container with --ulimit memlock=-1");
}

TEST_F(DoctorMemoryTest, WindowsPinThePoolOnce) {
  auto pool = server(64);
  pool.transports.rdma_protection = config::RdmaProtection::kWindows;
  pool.limits.sessions_max = 10;
  EXPECT_EQ(pinned_by_server(pool).one_session, (64U << 20U) + (320U << 10U));
  EXPECT_EQ(pinned_by_server(pool).all_sessions, (64U << 20U) + (3200U << 10U));
}

TEST_F(DoctorMemoryTest, RegistrationsPinForEachSessionAtMostItsBound) {
  auto pool = server(64);
  pool.limits.sessions_max = 10;
  pool.limits.session_memory_bytes = 16U << 20U;
  EXPECT_EQ(pinned_by_server(pool).one_session, (16U << 20U) + (320U << 10U));
  EXPECT_EQ(pinned_by_server(pool).all_sessions, (160U << 20U) + (3200U << 10U));
}

TEST_F(DoctorMemoryTest, SessionsOfOneKeyPinARegionOnce) {
  auto pool = server(64);
  pool.limits.sessions_max = 10;
  pool.auth = config::Auth::kKeys;
  pool.clients = {{.name = "one"}, {.name = "two"}};
  EXPECT_EQ(pinned_by_server(pool).one_session, (64U << 20U) + (320U << 10U));
  EXPECT_EQ(pinned_by_server(pool).all_sessions, (128U << 20U) + (3200U << 10U));
  pool.clients[0].previous_key =
      config::SecretKey::parse("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f")
          .value();
  EXPECT_EQ(pinned_by_server(pool).all_sessions, (192U << 20U) + (3200U << 10U));
  pool.limits.session_memory_bytes = 16U << 20U;
  EXPECT_EQ(pinned_by_server(pool).all_sessions, (160U << 20U) + (3200U << 10U))
      << "ten sessions, each with other regions";
}

TEST_F(DoctorMemoryTest, RegistrationsPinAtMostTheBoundOverAllSessions) {
  auto pool = server(64);
  pool.limits.sessions_max = 10;
  pool.limits.registered_bytes_max = 100U << 20U;
  EXPECT_EQ(pinned_by_server(pool).one_session, (64U << 20U) + (320U << 10U));
  EXPECT_EQ(pinned_by_server(pool).all_sessions, (100U << 20U) + (3200U << 10U));
}

TEST_F(DoctorMemoryTest, NumberThatDoesNotFitIsTheLargest) {
  auto pool = server(64);
  pool.pool.size_bytes = UINT64_MAX - 1;
  EXPECT_EQ(pinned_by_server(pool).all_sessions, UINT64_MAX);
}

TEST_F(DoctorMemoryTest, NoHugePagesAreRedWhereTheyAreRequired) {
  put("/proc/meminfo",
      "HugePages_Total:       3\nHugePages_Free:        1\nHugepagesize: 2048 kB\n");
  auto pool = server(64);
  pool.pool.huge_pages = config::HugePages::kRequire;
  const Finding finding = huge_pages(pool);
  EXPECT_EQ(finding.colour, Colour::kRed);
  EXPECT_EQ(finding.found, "reserved huge pages: 1 of 3 free (2MiB); the pool takes 64MiB");
  EXPECT_EQ(finding.why, "pool.huge_pages is 'require': the server does not start");
  EXPECT_EQ(finding.command, "sudo sysctl vm.nr_hugepages=34");
}

TEST_F(DoctorMemoryTest, PagesThatAServerWhichRunsHasTakenAreNotMissing) {
  calls.bind_errors[7471] = EADDRINUSE;
  auto pool = server(64);
  for (const auto pages : {config::HugePages::kRequire, config::HugePages::kRequire1GiB}) {
    pool.pool.huge_pages = pages;
    const Finding finding = huge_pages(pool);
    EXPECT_EQ(finding.colour, Colour::kNotChecked);
    EXPECT_THAT(finding.found, HasSubstr("the server's port is in use, so it may run"));
    EXPECT_EQ(finding.command, "");
  }
}

TEST_F(DoctorMemoryTest, PagesOfAnotherDefaultSizeAreNotCounted) {
  put("/proc/meminfo",
      "HugePages_Total:      64\nHugePages_Free:       64\nHugepagesize: 1048576 kB\n");
  put("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "3\n");
  put("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "1\n");
  auto pool = server(64);
  pool.pool.huge_pages = config::HugePages::kRequire;
  const Finding finding = huge_pages(pool);
  EXPECT_EQ(finding.colour, Colour::kRed) << "the server takes pages of 2 MiB alone";
  EXPECT_EQ(finding.found, "reserved huge pages: 1 of 3 free (2MiB); the pool takes 64MiB");
  EXPECT_EQ(finding.command,
            "echo 34 | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
}

TEST_F(DoctorMemoryTest, PagesOfAGibibyteAreCountedApart) {
  put("/proc/meminfo",
      "HugePages_Total:    9999\nHugePages_Free:     9999\nHugepagesize: 2048 kB\n");
  put("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "5\n");
  put("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", "1\n");
  auto pool = server(2048);
  pool.pool.huge_pages = config::HugePages::kRequire1GiB;
  const Finding missing = huge_pages(pool);
  EXPECT_EQ(missing.colour, Colour::kRed);
  EXPECT_EQ(missing.found, "reserved pages of 1GiB: 1 of 5 free; the pool takes 2GiB");
  EXPECT_EQ(missing.why, "pool.huge_pages is '1GiB': the server does not start");
  EXPECT_EQ(missing.command,
            "echo 6 | sudo tee /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages   # or "
            "hugepagesz=1G hugepages=N for the kernel, at boot");
  put("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", "2\n");
  EXPECT_EQ(huge_pages(pool).colour, Colour::kGreen);
}

TEST_F(DoctorMemoryTest, NoHugePagesAreYellowWhereTheyAreTried) {
  auto pool = server(64);
  EXPECT_EQ(huge_pages(pool).colour, Colour::kYellow);
  pool.pool.huge_pages = config::HugePages::kNever;
  EXPECT_EQ(huge_pages(pool).colour, Colour::kGreen);
}

TEST_F(DoctorMemoryTest, SeccompThatRefusesUserfaultfdIsTold) {
  calls.userfaultfd = EPERM;
  put("/proc/self/status", "Seccomp:\t2\n");
  const Finding finding = userfaultfd();
  EXPECT_EQ(finding.colour, Colour::kYellow);
  EXPECT_EQ(finding.found,
            "userfaultfd does not work: Operation not permitted; a seccomp filter is active");
  EXPECT_EQ(finding.command, "start the container with a seccomp profile that allows userfaultfd");
}

TEST_F(DoctorMemoryTest, UserfaultfdForRootAloneGetsTheSetting) {
  calls.userfaultfd = EPERM;
  EXPECT_EQ(userfaultfd().command, "sudo sysctl vm.unprivileged_userfaultfd=1");
  calls.userfaultfd = 0;
  EXPECT_EQ(userfaultfd().found, "userfaultfd works");
}

class DoctorNodesTest : public DoctorMemoryTest {
 protected:
  void add_two_nodes() const {
    const std::string nodes = "/sys/devices/system/node/";
    put(nodes + "node0/cpulist", "0-7\n");
    put(nodes + "node0/distance", "10 21\n");
    put(nodes + "node1/cpulist", "8-15\n");
    put(nodes + "node1/distance", "21 10\n");
  }
  [[nodiscard]] Finding with_nic_on(int node) const {
    DeviceView nic;
    nic.name = "mlx5_0";
    nic.memory_node = node;
    return finding_of(check_memory_nodes(machine(), {nic}), "memory-node");
  }
};

TEST_F(DoctorNodesTest, OneNodeIsGreen) {
  EXPECT_EQ(with_nic_on(0).found, "the machine has one memory node");
}

TEST_F(DoctorNodesTest, ProcessorsOfTheOtherNodeAreYellow) {
  add_two_nodes();
  put("/proc/self/status", "Cpus_allowed_list:\t0-7\nMems_allowed_list:\t0-1\n");
  const Finding finding = with_nic_on(1);
  EXPECT_EQ(finding.colour, Colour::kYellow);
  EXPECT_EQ(finding.found,
            "mlx5_0 is on memory node 1, distance 21 to node 0; this process may use processors "
            "0-7 alone, none of which is there");
  EXPECT_THAT(finding.command, StartsWith("numactl --cpunodebind=1 --membind=1 COMMAND"));
}

TEST_F(DoctorNodesTest, ProcessorsOfTheSameNodeAreGreen) {
  add_two_nodes();
  put("/proc/self/status", "Cpus_allowed_list:\t0-15\nMems_allowed_list:\t0-1\n");
  const Finding finding = with_nic_on(1);
  EXPECT_EQ(finding.colour, Colour::kGreen);
}

TEST(DoctorLists, NumbersAreFoundInLists) {
  EXPECT_TRUE(list_has("0-3,8", 2));
  EXPECT_TRUE(list_has("0-3,8", 8));
  EXPECT_FALSE(list_has("0-3,8", 4));
  EXPECT_FALSE(list_has("", 0));
  EXPECT_TRUE(lists_meet("0-3,8", "4-9"));
  EXPECT_FALSE(lists_meet("0-3", "4-9"));
  EXPECT_FALSE(lists_meet("", "0"));
}

}  // namespace
}  // namespace remora::apps::doctor
