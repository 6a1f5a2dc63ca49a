#include <remora/volume/remedy.h>

namespace remora::volume {

std::string_view remedy(const Error& error) noexcept {
  const std::string_view operation = error.operation();
  const Code code = error.code();
  if (operation.starts_with("cluster URI "))
    return "a cluster is remora+etcd://HOST[:2379][,HOST2...]/CLUSTER[?tls=on] or "
           "remora+file:///PATH/NAME.json; a volume adds /VOLUME to that path";
  if (operation == "etcd" && (code == Code::kUnreachable || code == Code::kTimedOut))
    return "check that etcd runs, and has a leader ('etcdctl --endpoints=HOST:2379 endpoint "
           "status'); an etcd with TLS needs tls=on";
  if (operation == "etcd" && code == Code::kLimitExceeded)
    return "etcd's database is full, or --max-txn-ops is below 128: 'etcdctl endpoint status'";
  if (operation == "etcd" && code == Code::kProtocol)
    return "give the client port of etcd (2379 by default), with tls=on if etcd uses TLS there";
  if (operation == "gateway of etcd") return "it takes etcd 3.4 or later, with its JSON gateway";
  if (operation == "user of etcd" || operation == "password of etcd")
    return "REMORA_ETCD_USER and REMORA_ETCD_PASSWORD_FILE name the user, in a server's file "
           "cluster.user and cluster.password_file; 'etcdctl user grant-role' gives it a role for "
           "the keys of /remora/";
  if (operation == "certificate of etcd")
    return "REMORA_ETCD_CA_FILE, REMORA_ETCD_CERTIFICATE_FILE and REMORA_ETCD_KEY_FILE name the "
           "certificates, in a server's file cluster.tls_*; ?tls=on is for an etcd with TLS";
  if (operation == "cluster file" || operation == "lock of the cluster file")
    return "the file and its folder belong to the user of the servers and clients of one host";
  if (operation == "version of a cluster's record")
    return "use the version of Remora that has written it, or a later one";
  if (operation == "record of a cluster")
    return "another program has written the key, or it is damaged: 'etcdctl get KEY' shows it";
  if (operation == "header of a member" && code == Code::kUnsupported)
    return "claim the volume with the version of Remora that has written it last, or a later one";
  if (operation == "header of a member")
    return "another program has written into that region, or it is damaged: if nothing of it is "
           "missed, 'remora rm' removes it; then 'remora volume repair --from-headers'";
  if (operation == "volume" && code == Code::kNotFound)
    return "'remora volume ls' shows the volumes of the cluster";
  if (operation == "volume that is being created" || operation == "volume that is being removed")
    return "wait, or clear what an interrupted command has left: 'remora volume rm'";
  if (operation == "claim of a volume" && code == Code::kBusy)
    return "another client writes it: end that one, or claim with 'steal' or by 'remora volume "
           "release', after which its operations fail; a client that has died loses its claim "
           "after ten seconds";
  if (operation == "claim of a volume" && code == Code::kAccessRefused)
    return "claim it again, unless the other client has to have it";
  if (code == Code::kNoRight && error.subject().ends_with("a mirror that is not claimed"))
    return "a mirror has one writer at a time: claim the volume by the handle that writes, then "
           "repeat "
           "the write";
  if (operation == "store that was restored")
    return "the store was restored from a snapshot that is older than the members: restore a newer "
           "one, or see engine/docs/operating-volumes.md ('remora volume repair --from-headers')";
  if (operation == "volume that is being imported")
    return "wait, or repeat the 'remora volume import' that was interrupted";
  if (operation == "volume with a claimed writer")
    return "end that program first; a program that has ended loses its claim after some seconds";
  if (operation == "server that is drained meanwhile")
    return "repeat it: the next one takes other servers";
  if (operation == "volume that another client changes") return "look again, and repeat it";
  if (operation == "room for a volume")
    return "ask for less, remove volumes, or register servers with more memory";
  return {};
}

}  // namespace remora::volume
