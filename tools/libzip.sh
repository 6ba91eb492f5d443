#!/bin/sh
# Build and install the libzip that wheels are linked with: a static one that knows deflate only, so that a wheel brings
# no other library. Its notice goes to licenses/, and from there into the wheel.
#
#     tools/libzip.sh [PREFIX]        /usr/local by default
set -eu

version=1.7.3
sum=a60473ffdb7b4260c08bfa19c2ccea0438edac11193c3afbbb1f17fbcf6c6132 # Debian's of the same archive

prefix=${1:-/usr/local}
cd "$(dirname "$0")/.."
mkdir -p build
archive=build/libzip-$version.tar.xz source=build/libzip-$version objects=build/libzip-objects

if command -v yum >/dev/null; then
    yum install -y zlib-devel
elif command -v apk >/dev/null; then
    apk add zlib-dev cmake
fi

[ -f "$archive" ] || curl -fsSL -o "$archive" "https://libzip.org/download/libzip-$version.tar.xz"
if command -v sha256sum >/dev/null; then
    echo "$sum  $archive" | sha256sum -c -
else
    echo "$sum  $archive" | shasum -a 256 -c -
fi
tar -xf "$archive" -C build

options="-DBUILD_SHARED_LIBS=OFF -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_BUILD_TYPE=Release"
for part in COMMONCRYPTO GNUTLS MBEDTLS OPENSSL WINDOWS_CRYPTO BZIP2 LZMA; do
    options="$options -DENABLE_$part=OFF"
done
for part in TOOLS REGRESS EXAMPLES DOC; do
    options="$options -DBUILD_$part=OFF"
done
# 3.5: newer CMakes refuse what this libzip says it needs.
# shellcheck disable=SC2086 # options are words
cmake -S "$source" -B "$objects" $options -DCMAKE_POLICY_VERSION_MINIMUM=3.5 \
    -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib
cmake --build "$objects" --parallel
cmake --install "$objects"

mkdir -p licenses
{
    printf 'libzip, which is linked in\n\n'
    cat "$source/LICENSE"
} >licenses/libzip.txt
