#!/bin/sh
# A newer Python than that of this machine, for the wheel of the stable ABI: Debian 13's Python 3.13,
# unpacked into FOLDER/root with the C library that it needs. FOLDER/python starts it.
#
# Usage: make_newer_python.sh FOLDER
set -eu
mkdir -p "$1"
folder=$(cd "$1" && pwd)

fail() {
  echo "test-abi3: $*" >&2
  exit 1
}

[ "$(uname -m)" = x86_64 ] || fail "it is for x86-64."
command -v apt-get >/dev/null || fail "it takes packages from Debian's archive, and apt-get is not here."

# A list of packages apart from the system's, with nothing installed: this machine stays as it is.
apt_newer() {
  apt-get -qq -o APT::Sandbox::User= -o Dir::State="$folder/apt" -o Dir::Cache="$folder/apt/cache" \
    -o Dir::State::status="$folder/apt/status" -o Dir::Etc::sourcelist="$folder/apt/sources.list" \
    -o Dir::Etc::sourceparts=- "$@"
}
rm -rf "$folder/apt" "$folder/root"
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial" "$folder/root"
: >"$folder/apt/status"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie main" \
  >"$folder/apt/sources.list"
apt_newer update || fail "apt-get cannot read the list of Debian 13's packages."
apt_newer install -y --no-install-recommends --download-only python3.13 libpython3.13-dev libstdc++6 \
  >/dev/null || fail "apt-get cannot download Python 3.13."
for package in "$folder"/apt/cache/archives/*.deb; do
  dpkg -x "$package" "$folder/root"
done
rm -rf "$folder/apt"
ln -s ../x86_64-linux-gnu "$folder/root/usr/include/python3.13/" # where its pyconfig.h looks

cat >"$folder/python" <<END
#!/bin/sh
root="$folder/root/usr"
export PYTHONHOME="\$root"
exec "\$root/lib64/ld-linux-x86-64.so.2" --argv0 "\$0" \\
  --library-path "\$root/lib/x86_64-linux-gnu" "\$root/bin/python3.13" "\$@"
END
chmod +x "$folder/python"
"$folder/python" -c 'import ctypes, ssl' || fail "the Python of $folder/root does not start."
