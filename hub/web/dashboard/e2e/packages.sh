#!/bin/sh
# Installs the browser that the tests drive, from Debian, where it is not here.
set -eu
command -v chromium >/dev/null && exit 0
export DEBIAN_FRONTEND=noninteractive
apt-get install -y -q chromium >/dev/null || { apt-get update -q >/dev/null && apt-get install -y -q chromium >/dev/null; }
