#pragma once

/// The remedies at the end of an Error's text. Error::remedy() chooses one of them.

#include <cerrno>
#include <string_view>

#include <remora/error_code.h>

namespace remora::detail {

/// The remedy for one part of a URI; empty for other operations.
[[nodiscard]] constexpr std::string_view remedy_of_uri(std::string_view operation) noexcept {
  if (operation == "URI scheme")
    return "a URI is remora://HOST[:PORT][/REGION][?transport=rdma|shm|tcp]";
  if (operation == "URI host")
    return "behind remora:// stands a name, an IPv4 address, or an IPv6 address in brackets";
  if (operation == "URI port") return "a port is a number from 1 to 65535";
  if (operation == "URI region")
    return "a region's name has 1 to 64 of A-Z a-z 0-9 . _ - and is neither . nor ..";
  if (operation == "URI option")
    return "options are transport=rdma, transport=shm, transport=tcp or transport=auto, and "
           "crc=payload with transport=tcp; with rdma, or none named, traffic_class, "
           "service_level, pkey, gid_index, mtu, timeout, retry_count, rnr_retry and rails";
  if (operation == "URI setting of rdma")
    return "traffic_class and gid_index are 0 to 255, service_level 0 to 15, pkey 1 to 0xffff, mtu "
           "256, 512, 1024, 2048 or 4096, timeout 1 to 31, retry_count and rnr_retry 0 to 7, rails "
           "auto, 1 to 8 or names of devices";
  if (operation == "URI transport") return "a transport is rdma, shm, tcp or auto";
  return {};
}

/// The limit is that of this process, or that of the server that has reported it.
[[nodiscard]] constexpr std::string_view remedy_of_memlock(bool of_server) noexcept {
  if (of_server)
    return "raise the server's limit on locked memory: LimitMEMLOCK= in its service unit, "
           "'ulimit -l unlimited', or --ulimit memlock=-1 for its container";
  return "raise this process's limit on locked memory: 'ulimit -l unlimited', LimitMEMLOCK= in its "
         "service unit, or --ulimit memlock=-1 for its container";
}

/// What to do about an error with this reason, for its message; empty: no remedy is known.
[[nodiscard]] constexpr std::string_view remedy_of(Reason reason) noexcept {
  switch (reason) {
    case Reason::kPoolFull:
      return "ask for less, remove regions ('remora ls' and 'remora rm'), or raise pool.size in "
             "the server's file";
    case Reason::kNoAtomics:
      return "atomics need a region created with an atomic domain: RegionSpec::atomic_domain, or "
             "'atomics' of the region in the server's file";
    case Reason::kNotOffered:
      return "'remora stat' of the server shows what it offers; transports in its file changes it";
    case Reason::kUnknownDevice:
      return "an atomic domain is auto, none, cpu or one of the server's devices (the log of its "
             "start names them)";
    case Reason::kAuthentication:
      return "EngineOptions::client_name and key have to be those of one of 'clients' in the "
             "server's file, and without 'auth: keys' there a client must have no key";
    case Reason::kNoThread:
      return "raise the limit on threads: 'ulimit -u' (RLIMIT_NPROC), pids.max of the cgroup "
             "(TasksMax= in the service unit, --pids-limit for a container), or 'sysctl "
             "kernel.threads-max kernel.pid_max'";
    case Reason::kForked:
      return "make a new Engine, Server or verbs::Device in this process, or fork before the "
             "first; a program that is started by exec needs neither";
    case Reason::kGidUnset:
    case Reason::kGidFamily:
    case Reason::kGidScope:
      return "choose GIDs of one kind on both sides (gid_index): 'ibv_devinfo -v' lists them";
    case Reason::kNoNeighbour:
      return "check 'ip route get ADDRESS' and 'ip neigh' on the GID's interface, and that the "
             "peer answers 'ping'";
    case Reason::kZeroLength: return "an operation moves at least one byte";
    case Reason::kNullPointer: return "give it memory of that length";
    case Reason::kEmptySlot:
      return "SlotPool::take() gives an empty slot when all are out, and a slot that was moved "
             "from "
             "is empty";
    case Reason::kOutsideMemory:
      return "offset and length of the part have to lie within RegisteredMemory::bytes()";
    case Reason::kPieces: return "an operation takes 1 to 1024 pieces (kMaxPieces)";
    case Reason::kNotRemora:
      return "give the port of remora-server's listen.port (7471 by default)";
    case Reason::kHttp:
      return "is it the port of metrics.address? Clients connect to remora-server's listen.port "
             "(7471 by default)";
    case Reason::kTooOften:
      return "limits.resumes_per_minute in the server's file bounds it: look for the cause of the "
             "interruptions in the client's log";
    default: return {};
  }
}

/// For a chain of requests that was refused before posting, or met a full queue. The end of the
/// subject names the wrong part of the request.
[[nodiscard]] constexpr std::string_view remedy_of_post(std::string_view operation, Code code,
                                                        std::string_view subject) noexcept {
  if (code == Code::kWouldBlock && operation.starts_with("ibv_post_"))
    return "the queue is full: take completions first, a signaled one frees all before it";
  const bool batch = operation == "Batch::post" || operation == "ReceiveBatch::post";
  if (!batch && operation != "MemoryRegion::slice") return {};
  switch (code) {
    case Code::kLimitExceeded:
      if (subject.ends_with("inline bytes"))
        return "ask for more when the queue pair is built (QueuePairBuilder::inline_bytes; "
               "capabilities() tells what was granted), or send registered memory";
      if (subject.ends_with("inline read"))
        return "only sends and writes can be inline: give it registered memory";
      if (subject.ends_with("slices"))
        return "ask for more with QueuePairBuilder::send_sge or receive_sge, or a storage of your "
               "own";
      return "post in parts, or take more room: QueuePairBuilder::batch_requests, or a storage of "
             "your own";
    case Code::kOutOfRange:
      return "cut slices inside their registration (checked_slice tells at once), and let the "
             "remote one be as long as the local";
    case Code::kInvalidArgument:
      return "an atomic takes 8 local bytes; a window is bound by its own queue pair, to a "
             "registration with kWindowBind";
    case Code::kBusy:
      return "post or drop the other batch first, or start this one in a storage of its own";
    case Code::kClosed: return "the window went with its queue pair or registration: allocate one";
    default: return {};
  }
}

inline constexpr std::string_view kRemedyOfZone =
    "fe80:: addresses exist on each interface: append the one that is meant, as in fe80::1%eth0 "
    "('ip -6 addr' lists them)";

/// For an argument that verbs/ or the driver has refused.
[[nodiscard]] constexpr std::string_view remedy_of_argument(std::string_view operation,
                                                            std::string_view subject) noexcept {
  if (subject.starts_with("port of "))
    return "ports count from 1: 'rdma link' and 'ibv_devinfo' show those of the device";
  if (subject.starts_with("no bytes") || subject.ends_with("wrap around"))
    return "a range has at least one byte and ends before the address space does: take pointer and "
           "length from the same buffer";
  if (operation == "ibv_create_cq")
    return "a completion queue has at least one entry, a vector below "
           "Device::completion_vector_count(), and events or channel, not both, of its own device";
  if (operation == "ibv_req_notify_cq" || operation == "ibv_get_cq_event" ||
      operation == "CompletionQueue::wait")
    return "create the queue with CompletionQueueOptions::events or channel; to wait on it, with "
           "events and a storage that is not empty";
  if (operation == "ibv_start_poll")
    return "create the queue with CompletionQueueOptions::fields, or use poll()";
  if (operation == "QueuePairBuilder::build")
    return subject.find(" port ") != std::string_view::npos
               ? "'rdma link' shows the state of ports: on Ethernet it is the interface's ('ip "
                 "link "
                 "set IF up')"
               : "queue_pair.h has the range of each option";
  if (operation == "rdma_set_option") return "the time-out is a code of 0 to 31: 4.096 us * 2^n";
  if (operation == "PreparedQueuePair::connect")
    return "an endpoint comes from the peer's endpoint(), over Endpoint::to_wire and from_wire";
  if (operation == "rdma_connect" || operation == "rdma_accept")
    return "create_queue_pair() comes first";
  if (operation == "Address::parse") return "an address is 192.0.2.1, 2001:db8::1 or fe80::1%eth0";
  if (operation == "link-local address without a zone") return kRemedyOfZone;
  if (operation == "Address::resolve") return "give a host's name or an address";
  if (operation == "ChainStorage::allocate")
    return "it has room for one request of one slice at least";
  if (operation == "Device::borrow") return "take the context of an open device";
  if (!operation.starts_with("ibv_") && !operation.starts_with("MemoryRegion::") &&
      !operation.starts_with("MrCache::"))
    return {};
  return "an object that is empty or of another device or domain, or a value out of its range: the "
         "header of the call says what it takes";
}

/// The remedy if the process or the host has run out of a resource.
[[nodiscard]] constexpr std::string_view remedy_of_errno(int number) noexcept {
  if (number == EMFILE)
    return "this process has as many open files as it may: raise its limit ('ulimit -n', "
           "LimitNOFILE= of a unit, --ulimit nofile of a container)";
  if (number == ENFILE)
    return "this host has as many open files as it may: 'sysctl fs.file-nr fs.file-max'";
  return {};
}

/// The remedy for a connection over tcp that this host, not the server, refused.
[[nodiscard]] constexpr std::string_view remedy_of_connect(std::string_view operation, Code code,
                                                           int number) noexcept {
  if (operation != "connect over tcp") return {};
  if (number == EADDRNOTAVAIL)
    return "every local port is in use towards that server: 'ss -tan' shows by what; widen "
           "'sysctl net.ipv4.ip_local_port_range'";
  if (number == ENOBUFS || number == ENOMEM)
    return "the kernel of this host has no memory for another socket: see 'ss -s' and "
           "'sysctl net.ipv4.tcp_mem'";
  if (number == ENETUNREACH || number == EHOSTUNREACH || number == ENETDOWN)
    return "this host has no way to that address: see 'ip route get ADDRESS' and 'ip addr'";
  if (code == Code::kUnreachable)
    return "check the address, the route ('ip route get ADDRESS') and firewalls between";
  return {};
}

/// The remedy for a verbs call of which only the errno is known.
[[nodiscard]] constexpr std::string_view remedy_of_verb(std::string_view operation, Code code,
                                                        int number,
                                                        std::string_view subject) noexcept {
  if (!operation.starts_with("ibv_") && !operation.starts_with("rdma_")) return {};
  switch (code) {
    case Code::kLimitExceeded:
      if (subject == "private data") return "send the rest once connected";
      return "ask for less: 'ibv_devinfo -v' shows the device's limits";
    case Code::kUnsupported:
      return "neither device nor driver can do it: 'ibv_devinfo -v' shows what they can";
    case Code::kOutOfMemory:
      return "device or host has no more: 'rdma resource show' lists the processes that hold them";
    case Code::kPermissionDenied:
      return "the user needs read and write access to /dev/infiniband/*";
    case Code::kProvider: break;
    default: return {};
  }
  if (number == EINVAL && subject.find(" inline bytes on ") != std::string_view::npos)
    return "no command shows how many inline bytes a device takes: ask for fewer, capabilities() "
           "of the queue pair then tells what was granted";
  if (number == EINVAL) return "the driver refused an argument: compare it with 'ibv_devinfo -v'";
  if (number == EBUSY) return "something made from it is still in use";
  return "'dmesg' and 'rdma resource show' may tell more";
}

inline constexpr std::string_view kRemedyOfVersion =
    "upgrade the older one of client and server ('remora version')";

/// Whether the operation is one on the bytes of a region.
[[nodiscard]] constexpr bool is_region_operation(std::string_view operation) noexcept {
  return operation == "read" || operation == "write" || operation == "compare_swap" ||
         operation == "fetch_add" || operation == "write_zeroes" || operation == "write_notify" ||
         operation == "flush_visible";
}

/// For kNotFound: the object of the call does not exist.
[[nodiscard]] constexpr std::string_view remedy_of_missing(std::string_view operation) noexcept {
  if (operation == "key file")
    return "'remora key generate FILE' makes one; REMORA_KEY_FILE names that of the command line "
           "program, key_file that of a server";
  if (operation == "DeviceList::find") return "'rdma link' lists the devices of this host";
  if (operation == "choose_gid")
    return "give the port's interface an address ('ip addr add'), or choose a GID by its index";
  if (operation == "RDMA device of this network namespace")
    return "each network namespace of this host has RDMA devices of its own ('rdma system': netns "
           "exclusive): move one here by 'rdma dev set DEVICE netns NAME' where it is now, or let "
           "all use all by 'rdma system set netns shared'; '?transport=tcp' needs none";
  if (operation == "rdma setting that the port does not have")
    return "a server's file sets it below 'rdma', a client by its URI or EngineOptions::rdma; "
           "pkeys and gids of /sys/class/infiniband/DEVICE/ports/PORT are what the port has";
  if (operation == "QueuePairBuilder::build") return "'ibv_devinfo -v' lists the port's GIDs";
  if (operation == "getaddrinfo") return "check the host's name ('getent hosts NAME')";
  if (operation == "ibv_get_device_list" || operation == "rdma_get_devices")
    return "no RDMA device: install the NIC's driver, or 'rdma link add rxe0 type rxe netdev IF'; "
           "'?transport=tcp' needs none, nor does '?transport=shm' on the server's own host";
  return {};
}

/// The remedy if the failed call tells more than the code.
[[nodiscard]] constexpr std::string_view remedy_of(std::string_view operation, Code code) noexcept {
  if (operation == "connect over shm" &&
      (code == Code::kConnectionRefused || code == Code::kPermissionDenied))
    return "remora-server must run on this host as the same user, with that port and the same "
           "REMORA_RUNTIME_DIR (else XDG_RUNTIME_DIR, else /tmp/remora-UID)";
  if (operation == "socket folder")
    return "make it a folder of the server's user with mode 0700, or let REMORA_RUNTIME_DIR name "
           "one, for server and clients alike";
  if (operation == "connection that the server refused") return "the server's log has the rest";
  if (code == Code::kUnreachable && operation.starts_with("rdma_"))
    return "check the address, the route and the device with 'ibv_devinfo'";
  if (code == Code::kConnectionRefused && operation == "find the server over shm")
    return "name the address at which the server listens";
  if (code == Code::kTimedOut && operation.starts_with("connect over "))
    return "the server stands still, is overloaded, or something else listens on that port";
  if (code == Code::kNoRight && is_region_operation(operation))
    return "open the region with the right: reads and flush_visible need Rights::kRead, writes "
           "kWrite, compare_swap and fetch_add kAtomic";
  if (code == Code::kLimitExceeded && operation == "allocate_slots")
    return "allocate several pools";
  if (code == Code::kNoRight && operation == "open")
    return "the region's rights or its access list give this client less: 'remora stat' shows the "
           "rights, its owner knows the list";
  if (code == Code::kAlreadyExists && operation == "create")
    return "choose another name, or remove it first ('remora rm')";
  if (code == Code::kBusy && operation == "remove")
    return "clients have it open, or may come back to it within limits.session_keep: 'remora stat' "
           "counts them; try again, or take it from them (Removal::kNow), or let them keep it "
           "until they close it (Removal::kWhenUnused)";
  if (code == Code::kBusy && operation == "fence")
    return "a client over shm stands still and keeps it mapped; the server cannot unmap it there: "
           "try again when that client goes on, or end it";
  if (code == Code::kUnreachable && operation == "bind")
    return "it is no address of this host ('ip addr' lists them): correct listen.address, or "
           "metrics.address";
  if (operation == "listen.address" || operation == "metrics.address") {
    if (code == Code::kUnreachable)
      return "it is no address of this machine: 'ip addr' lists those, 0.0.0.0 and :: stand for "
             "all";
    if (code == Code::kInvalidArgument) return kRemedyOfZone;
    if (code == Code::kNotFound || code == Code::kTimedOut)
      return "the name does not resolve here: correct it ('getent hosts NAME' looks it up), or "
             "give an address of this machine ('ip addr')";
  }
  if (operation.ends_with("larger than the memory limit"))
    return "lower pool.size, or raise the limit of the server's control group (MemoryMax= of a "
           "unit, --memory of a container)";
  if (operation == "region that no transport opens")
    return "set 'shm: true' for the region, or let the server offer rdma or tcp (transports)";
  if (code == Code::kUnsupported && operation == "resize")
    return "create another region of that size, copy what is in this one ('remora get' and "
           "'remora put'), and remove it";
  if (code == Code::kUnsupported && operation.starts_with("open over shm"))
    return "use another transport, or create the region anew with RegionSpec::shm";
  if (code == Code::kOutOfRange && is_region_operation(operation))
    return "offset and length have to lie within the region";
  if (operation == "rdma_create_event_channel")
    return "load the kernel module rdma_ucm and check /dev/infiniband/rdma_cm; '?transport=tcp' "
           "needs "
           "neither, nor does '?transport=shm' on the server's own host";
  if (operation == "MrCache::acquire" && code == Code::kLimitExceeded)
    return "ask for less, or raise the budget (MrCacheOptions)";
  if (operation == "MrCache::acquire" && code == Code::kOutOfMemory)
    return "drop leases, whose registrations cannot go, or raise the budget (MrCacheOptions)";
  return code == Code::kNotFound ? remedy_of_missing(operation) : std::string_view{};
}

/// What to do about an error with this code alone; empty: no remedy is known.
[[nodiscard]] constexpr std::string_view remedy_of(Code code) noexcept {
  switch (code) {
    case Code::kAddressInUse:
      return "stop the other process or choose another port ('ss -lntp' and 'rdma resource show "
             "cm_id' show the processes that listen)";
    case Code::kConnectionRefused: return "check that remora-server runs there and on that port";
    case Code::kUnreachable: return "check the address and the route ('ip route get ADDRESS')";
    case Code::kUnknownRegion: return "'remora ls' shows the regions of a server";
    case Code::kMisaligned: return "the offset of an atomic must be a multiple of 8";
    case Code::kIndeterminate:
      return "the operation may or may not have taken effect, and may still do so: wait for "
             "settled(), or for the server's limits.session_lease if the session has ended; then "
             "read back before you repeat it";
    case Code::kWrongAtomicDomain:
      return "open the region over the transport its atomics belong to ('remora stat' shows it)";
    case Code::kStaleRegion:
      return "the server lost its memory: open the region again and refill it";
    default: return {};
  }
}

}  // namespace remora::detail
