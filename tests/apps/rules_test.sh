#!/usr/bin/env bash
# What metrics/prometheus/tests want of the rules and alerts: for each alert a case in which it fires, and one in
# which it does not. Half a minute of a processor.
set -euo pipefail

command -v promtool >/dev/null || { echo "no promtool: run ci/setup.sh test"; exit 77; }
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
promtool test rules metrics/prometheus/tests/*.yml
