/// One-sided operations by UCX (ucp) on a target that polls: no thread of it ever sleeps, which
/// `ucx_perftest` cannot be told.
///
///   peer_ucx --transport posix|tcp [--region-mib 1024] [--core 1] [--server-core 0]
///
/// The region is allocated by UCX itself, so that posix reaches it by plain loads and stores. A
/// write counts when it is flushed: over tcp one flush for all that are in flight.

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <ucp/api/ucp.h>
#include <utility>
#include <vector>

#include "jobs.h"

namespace remora::bench {
namespace {

void check(ucs_status_t status, const char* what) {
  if (status != UCS_OK) give_up(std::string{what} + ": " + ucs_status_string(status));
}

struct Context {
  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
};

Context open_context(const std::string& transport) {
  Context made;
  // Without `self`, UCX 1.13 finds no way to its own memory and warns.
  require(::setenv("UCX_TLS", (transport + ",self").c_str(), 1) == 0, "setenv");
  require(::setenv("UCX_NET_DEVICES", "lo", 1) == 0, "setenv");
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_RMA | UCP_FEATURE_AMO64;
  check(ucp_init(&params, nullptr, &made.context), "ucp_init");
  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SINGLE;
  check(ucp_worker_create(made.context, &worker, &made.worker), "ucp_worker_create");
  return made;
}

std::string hex(const void* bytes, std::size_t length) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  const auto* at = static_cast<const unsigned char*>(bytes);
  for (std::size_t i = 0; i < length; ++i) {
    text += kDigits[at[i] >> 4U];
    text += kDigits[at[i] & 15U];
  }
  return text;
}

std::vector<char> of_hex(const std::string& text) {
  std::vector<char> bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

/// Tells "ADDRESS KEY WORKER", in hexadecimal, and polls for ever.
void serve(const std::string& transport, std::size_t region_bytes, int where) {
  const Context made = open_context(transport);
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.length = region_bytes;
  params.flags = UCP_MEM_MAP_ALLOCATE;
  ucp_mem_h memory = nullptr;
  check(ucp_mem_map(made.context, &params, &memory), "ucp_mem_map");
  ucp_mem_attr_t found{};
  found.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
  check(ucp_mem_query(memory, &found), "ucp_mem_query");
  std::memset(found.address, 1, region_bytes);
  void* key = nullptr;
  std::size_t key_bytes = 0;
  check(ucp_rkey_pack(made.context, memory, &key, &key_bytes), "ucp_rkey_pack");
  ucp_address_t* address = nullptr;
  std::size_t address_bytes = 0;
  check(ucp_worker_get_address(made.worker, &address, &address_bytes), "ucp_worker_get_address");
  ServerProcess::tell(where, std::to_string(reinterpret_cast<std::uintptr_t>(found.address)) + " " +
                                 hex(key, key_bytes) + " " + hex(address, address_bytes));
  for (;;) ucp_worker_progress(made.worker);
}

class UcxClient : public Client {
 public:
  UcxClient(const std::string& transport, const std::string& told, std::size_t region_bytes)
      : made_{open_context(transport)}, region_bytes_{region_bytes} {
    const std::size_t first = told.find(' ');
    const std::size_t second = told.find(' ', first + 1);
    base_ = std::stoull(told.substr(0, first));
    const std::vector<char> key = of_hex(told.substr(first + 1, second - first - 1));
    const std::vector<char> address = of_hex(told.substr(second + 1));
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<const ucp_address_t*>(address.data());
    check(ucp_ep_create(made_.worker, &params, &endpoint_), "ucp_ep_create");
    check(ucp_ep_rkey_unpack(endpoint_, key.data(), &key_), "ucp_ep_rkey_unpack");
    touch();
  }

  bool prepare(const Job& job) override {
    if (job.op == Op::kCompareSwap) return false;
    job_ = job;
    const std::size_t bytes = job.op == Op::kFetchAdd ? 8 : job.block_bytes;
    if (buffers_.size() < job.depth * bytes) buffers_.resize(job.depth * bytes);
    requests_.assign(job.depth, nullptr);
    blocks_ = std::make_unique<RandomBlocks>(region_bytes_, bytes);
    place_ = 0;
    return true;
  }

  /// Reads are waited for in the order of posting, which keeps `depth` of them in flight; writes,
  /// whose requests end as soon as UCX has taken the bytes, by one flush for `depth` of them.
  std::size_t advance() override {
    if (job_.op == Op::kWrite) {
      for (std::size_t i = 0; i < job_.depth; ++i) wait(post(i));
      flush();
      return job_.depth;
    }
    std::size_t done = 0;
    if (requests_[place_] != nullptr) {
      wait(std::exchange(requests_[place_], nullptr));
      ++done;
    }
    requests_[place_] = post(place_);
    if (requests_[place_] == nullptr) ++done;  // it has ended already
    if (job_.depth == 1 && requests_[0] != nullptr) {
      wait(std::exchange(requests_[0], nullptr));
      ++done;
    }
    place_ = (place_ + 1) % job_.depth;
    return done;
  }

  std::size_t drain() override {
    std::size_t done = 0;
    for (ucs_status_ptr_t& request : requests_) {
      if (request == nullptr) continue;
      wait(std::exchange(request, nullptr));
      ++done;
    }
    return done;
  }

 private:
  /// Null when it has completed.
  ucs_status_ptr_t post(std::size_t place) {
    ucp_request_param_t param{};
    const std::uint64_t to = base_ + blocks_->next();
    const std::size_t bytes = job_.block_bytes;
    char* const buffer = buffers_.data() + place * bytes;
    ucs_status_ptr_t request = nullptr;
    if (job_.op == Op::kRead) {
      request = ucp_get_nbx(endpoint_, buffer, bytes, to, key_, &param);
    } else if (job_.op == Op::kWrite) {
      request = ucp_put_nbx(endpoint_, buffer, bytes, to, key_, &param);
    } else {
      param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
      param.datatype = ucp_dt_make_contig(8);
      param.reply_buffer = buffers_.data() + place * 8;
      request = ucp_atomic_op_nbx(endpoint_, UCP_ATOMIC_OP_ADD, &one_, 1, to, key_, &param);
    }
    if (UCS_PTR_IS_ERR(request)) check(UCS_PTR_STATUS(request), "post");
    return request;
  }

  void wait(ucs_status_ptr_t request) {
    if (request == nullptr) return;
    ucs_status_t status = ucp_request_check_status(request);
    for (; status == UCS_INPROGRESS; status = ucp_request_check_status(request))
      ucp_worker_progress(made_.worker);
    ucp_request_free(request);
    check(status, "operation");
  }

  void flush() {
    const ucp_request_param_t param{};
    ucs_status_ptr_t const request = ucp_ep_flush_nbx(endpoint_, &param);
    if (UCS_PTR_IS_ERR(request)) check(UCS_PTR_STATUS(request), "flush");
    wait(request);
  }

  /// Every page is there, in both processes.
  void touch() {
    buffers_.resize(1U << 20U);
    const ucp_request_param_t param{};
    for (std::uint64_t at = 0; at < region_bytes_; at += buffers_.size())
      wait(ucp_get_nbx(endpoint_, buffers_.data(), buffers_.size(), base_ + at, key_, &param));
  }

  Context made_;
  std::size_t region_bytes_;
  std::uint64_t base_ = 0;
  ucp_ep_h endpoint_ = nullptr;
  ucp_rkey_h key_ = nullptr;
  std::uint64_t one_ = 1;
  Job job_;
  std::vector<char> buffers_;
  std::vector<ucs_status_ptr_t> requests_;
  std::unique_ptr<RandomBlocks> blocks_;
  std::size_t place_ = 0;
};

}  // namespace
}  // namespace remora::bench

int main(int argc, char** argv) {
  using namespace remora::bench;  // NOLINT(google-build-using-namespace)
  const Arguments arguments{argc, argv};
  const std::string transport = arguments.text("--transport", "posix");
  const std::size_t region_bytes = arguments.region_bytes();
  const auto server =
      ServerProcess::start(arguments, [&](int where) { serve(transport, region_bytes, where); });
  UcxClient client{transport, server->told(), region_bytes};
  return answer_jobs(client, server.get());
}
