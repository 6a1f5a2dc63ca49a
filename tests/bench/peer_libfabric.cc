/// One-sided operations by libfabric (fi_read, fi_write) on a target that polls.
///
///   peer_libfabric [--provider shm] [--region-mib 1024] [--core 1] [--server-core 0]
///
/// The client is the server's parent, so that the provider may copy between the two processes
/// (process_vm_readv) under every ptrace policy that lets it do so at all. A write counts when it
/// is delivered.

#include <array>
#include <cstdint>
#include <cstring>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <vector>

#include "jobs.h"

namespace remora::bench {
namespace {

void check(ssize_t status, const char* what) {
  if (status < 0) give_up(std::string{what} + ": " + fi_strerror(static_cast<int>(-status)));
}

/// One endpoint with what it needs. Ends with the process.
struct Endpoint {
  fi_info* info = nullptr;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_cq* completions = nullptr;
  fid_av* addresses = nullptr;
  fid_ep* endpoint = nullptr;

  explicit Endpoint(const std::string& provider) {
    fi_info* const hints = fi_allocinfo();
    hints->caps = FI_RMA | FI_MSG;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_LOCAL;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->fabric_attr->prov_name = ::strdup(provider.c_str());
    check(fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info), "fi_getinfo");
    fi_freeinfo(hints);
    check(fi_fabric(info->fabric_attr, &fabric, nullptr), "fi_fabric");
    check(fi_domain(fabric, info, &domain, nullptr), "fi_domain");
    fi_cq_attr queue{};
    queue.format = FI_CQ_FORMAT_CONTEXT;
    check(fi_cq_open(domain, &queue, &completions, nullptr), "fi_cq_open");
    fi_av_attr table{};
    check(fi_av_open(domain, &table, &addresses, nullptr), "fi_av_open");
    check(fi_endpoint(domain, info, &endpoint, nullptr), "fi_endpoint");
    check(fi_ep_bind(endpoint, &completions->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    check(fi_ep_bind(endpoint, &addresses->fid, 0), "fi_ep_bind");
    check(fi_enable(endpoint), "fi_enable");
  }

  fid_mr* register_memory(void* bytes, std::size_t length, std::uint64_t access,
                          std::uint64_t key) const {
    fid_mr* made = nullptr;
    check(fi_mr_reg(domain, bytes, length, access, 0, key, 0, &made, nullptr), "fi_mr_reg");
    return made;
  }

  /// Completions found, after moving things on.
  [[nodiscard]] std::size_t poll() const {
    std::array<fi_cq_entry, 64> found{};
    const ssize_t count = fi_cq_read(completions, found.data(), found.size());
    if (count == -FI_EAGAIN) return 0;
    check(count, "fi_cq_read");
    return static_cast<std::size_t>(count);
  }
};

/// Removes what the shm provider leaves in /dev/shm when its process ends without closing it.
void remove_shared_file(const std::string& name) {
  constexpr std::string_view kScheme = "fi_shm://";
  if (name.rfind(kScheme, 0) == 0) ::shm_unlink(name.substr(kScheme.size()).c_str());
}

/// Tells "BASE KEY NAME" and polls for ever.
void serve(const std::string& provider, std::size_t region_bytes, int where) {
  const Endpoint made{provider};
  std::byte* const region = populated_pages(region_bytes);
  fid_mr* const memory =
      made.register_memory(region, region_bytes, FI_REMOTE_READ | FI_REMOTE_WRITE, 1);
  std::array<char, 256> name{};
  std::size_t length = name.size();
  check(fi_getname(&made.endpoint->fid, name.data(), &length), "fi_getname");
  const bool by_address = (made.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
  std::ostringstream line;
  line << (by_address ? reinterpret_cast<std::uintptr_t>(region) : 0) << ' ' << fi_mr_key(memory)
       << ' ' << name.data();
  ServerProcess::tell(where, line.str());
  for (;;) static_cast<void>(made.poll());
}

class FabricClient final : public PipelinedClient {
 public:
  FabricClient(const std::string& provider, const std::string& told, std::size_t region_bytes)
      : made_{provider}, region_bytes_{region_bytes} {
    std::istringstream line{told};
    line >> base_ >> key_ >> peer_name_;
    if (fi_av_insert(made_.addresses, peer_name_.data(), 1, &peer_, 0, nullptr) != 1)
      give_up("fi_av_insert");
  }
  ~FabricClient() override {
    remove_shared_file(peer_name_);
    fi_close(&made_.endpoint->fid);
  }

  bool prepare(const Job& job) override {
    if (job.op != Op::kRead && job.op != Op::kWrite) return false;
    begin(job, region_bytes_);
    if (buffers_.size() < job.depth * job.block_bytes) {
      if (local_ != nullptr) fi_close(&local_->fid);
      buffers_.resize(job.depth * job.block_bytes);
      local_ = made_.register_memory(buffers_.data(), buffers_.size(), FI_READ | FI_WRITE, 2);
    }
    return true;
  }

  std::size_t advance() override {
    std::size_t done = 0;
    while (done == 0) {
      while (in_flight_ < job_.depth && post()) {
      }
      done = collect();
    }
    return done;
  }

 private:
  std::size_t collect() override {
    const std::size_t done = made_.poll();
    in_flight_ -= done;
    return done;
  }

  /// False: the provider takes no more for now.
  bool post() {
    const std::uint64_t at = base_ + (has_next_ ? next_ : blocks_->next());
    char* const buffer = buffers_.data() + place_ * job_.block_bytes;
    iovec local{buffer, job_.block_bytes};
    fi_rma_iov remote{at, job_.block_bytes, key_};
    void* descriptor = fi_mr_desc(local_);
    fi_msg_rma message{};
    message.msg_iov = &local;
    message.desc = &descriptor;
    message.iov_count = 1;
    message.addr = peer_;
    message.rma_iov = &remote;
    message.rma_iov_count = 1;
    const ssize_t status =
        job_.op == Op::kRead
            ? fi_readmsg(made_.endpoint, &message, FI_COMPLETION)
            : fi_writemsg(made_.endpoint, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE);
    has_next_ = status == -FI_EAGAIN;
    next_ = at - base_;
    if (has_next_) return false;
    check(status, "post");
    place_ = (place_ + 1) % job_.depth;
    ++in_flight_;
    return true;
  }

  Endpoint made_;
  std::size_t region_bytes_;
  std::uint64_t base_ = 0;
  std::uint64_t key_ = 0;
  std::string peer_name_;
  fi_addr_t peer_ = 0;
  fid_mr* local_ = nullptr;
  std::vector<char> buffers_;
  std::uint64_t next_ = 0;
  bool has_next_ = false;
};

}  // namespace
}  // namespace remora::bench

int main(int argc, char** argv) {
  using namespace remora::bench;  // NOLINT(google-build-using-namespace)
  const Arguments arguments{argc, argv};
  const std::string provider = arguments.text("--provider", "shm");
  const std::size_t region_bytes = arguments.region_bytes();
  const auto server =
      ServerProcess::start(arguments, [&](int where) { serve(provider, region_bytes, where); });
  FabricClient client{provider, server->told(), region_bytes};
  return answer_jobs(client, server.get());
}
