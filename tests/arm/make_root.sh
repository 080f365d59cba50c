#!/bin/sh
# What the core is built with and run on for 64-bit ARM, on a Debian machine of any kind:
# the emulator and the cross compiler, and in FOLDER/root the Python of Debian's arm64 packages.
# FOLDER/python starts it.
#
# Usage: make_root.sh PYTHON_VERSION FOLDER
set -eu
version=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)

fail() {
  echo "test-arm: $*" >&2
  exit 1
}

command -v apt-get >/dev/null || fail "it takes packages from Debian's archive, and apt-get is not here."
if ! command -v qemu-aarch64-static >/dev/null || ! command -v aarch64-linux-gnu-g++ >/dev/null; then
  [ "$(id -u)" = 0 ] || fail "needs root once: apt-get install qemu-user-static g++-aarch64-linux-gnu"
  apt-get update -qq
  apt-get install -y -qq -o DPkg::Lock::Timeout=300 --no-install-recommends \
    qemu-user-static g++-aarch64-linux-gnu >/dev/null ||
    fail "apt-get cannot install qemu-user-static and g++-aarch64-linux-gnu."
fi

# A list of packages apart from the system's, which knows arm64 alone and has nothing installed: apt
# finds all that Python depends on, and this machine stays as it is.
apt_arm64() {
  apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User= \
    -o Dir::State="$folder/apt" -o Dir::State::status="$folder/apt/status" \
    -o Dir::Cache="$folder/apt/cache" "$@"
}
rm -rf "$folder/apt" "$folder/root"
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial" "$folder/root"
: >"$folder/apt/status"
apt_arm64 update || fail "apt-get cannot read the list of arm64 packages."
apt_arm64 install -y --no-install-recommends --download-only \
  "python$version" "libpython$version-dev" libstdc++6 >/dev/null ||
  fail "Debian has no Python $version here: make clean, then make PYTHON=python3 with its own version."
for package in "$folder"/apt/cache/archives/*.deb; do
  dpkg -x "$package" "$folder/root"
done
rm -rf "$folder/apt"

# Programs that tests start are started with `sys.executable`, so that must be this script.
cat >"$folder/python" <<END
#!/bin/sh
export PYTHONHOME="$folder/root/usr"
exec qemu-aarch64-static -L "$folder/root" -0 "\$0" "$folder/root/usr/bin/python$version" "\$@"
END
chmod +x "$folder/python"
"$folder/python" -c 'import ctypes, ssl' || fail "the Python of $folder/root does not start."
