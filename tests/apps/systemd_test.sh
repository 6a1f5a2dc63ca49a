#!/usr/bin/env bash
# The unit file is one that systemd takes without a complaint, and keeps what the server needs.
# Arguments: the unit file as it is before it is installed, the built remora-server.
set -uo pipefail
unit=$1 program=$2

for line in Type=notify LimitMEMLOCK=infinity RuntimeDirectory=remora \
  REMORA_RUNTIME_DIR=/run/remora Restart=on-failure FileDescriptorStoreMax=4200 \
  FileDescriptorStorePreserve=yes StartLimitIntervalSec=0 WatchdogSec=60s; do
  grep -qE -- "^(Environment=)?$line\$" "$unit" || { echo "not ok - the unit lacks $line"; exit 1; }
done
if grep -qE '^(PrivateDevices|DevicePolicy)=' "$unit"; then
  echo "not ok - the unit hides /dev/infiniband"
  exit 1
fi
# With such a code the unit fails for good, and older versions of systemd close what is stored.
if grep -qE '^RestartPreventExitStatus=' "$unit"; then
  echo "not ok - a failed start loses the memory of pool.warm_restart"
  exit 1
fi
command -v systemd-analyze >/dev/null || { echo "systemd-analyze is not installed"; exit 77; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# The program of this build stands for the installed one, which verify wants to find.
sed "s|^ExecStart=@REMORA_BINDIR@/remora-server |ExecStart=$program |" "$unit" >"$folder/remora-server.service"
if ! systemd-analyze verify "$folder/remora-server.service" >"$folder/out" 2>&1 ||
  grep 'remora-server' "$folder/out" | grep -v 'FileDescriptorStorePreserve'; then  # systemd < 254
  cat "$folder/out"
  echo "not ok - systemd-analyze verify"
  exit 1
fi
echo "ok - systemd-analyze verify"
