#!/bin/sh
# Starts robots_guard and Envoy with the configuration in this directory, and ends both when one
# ends. It makes the directories of the sockets and of the CA, which only root may.
set -eu
cd "$(dirname "$0")"
mkdir -p /run/robots_guard /var/lib/robots_guard

robots-guard --config robots_guard.toml serve &
service=$!
envoy -c envoy.yaml --log-level warn &
envoy=$!
trap 'kill "$service" "$envoy" 2>/dev/null || true' EXIT INT TERM

# `wait -n` is not in every shell.
while kill -0 "$service" 2>/dev/null && kill -0 "$envoy" 2>/dev/null; do
    sleep 1
done
