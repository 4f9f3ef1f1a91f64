#!/bin/sh
# Installs exactly what lies beside this script, each file checked against its
# digest first. It needs no network. It runs once, as root, while E2B builds the
# template.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$here"
sha256sum --check --strict --quiet SHA256SUMS
sha512sum --check --strict --quiet SHA512SUMS

export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
cp dpkg.cfg /etc/dpkg/dpkg.cfg.d/dreamcore
# What is left out on purpose counts as there, or apt would ask for it.
cat omitted >>/var/lib/dpkg/status
# Nothing but these files can come in: apt gets no sources.
apt-get -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=/dev/null -o APT::Sandbox::User=root \
  install --yes --no-install-recommends --allow-downgrades --allow-change-held-packages ./packages/*.deb

# npm packages: only the files that the image has.
while IFS='	' read -r archive to files; do
  rm -rf unpacked
  mkdir unpacked
  tar --extract --gzip --file "npm/$archive" --strip-components 1 --no-same-owner --directory unpacked
  for file in $files; do
    mkdir -p "/$to/$(dirname "$file")"
    cp -R "unpacked/$file" "/$to/$(dirname "$file")/"
  done
  chown -R root:root "/$to"
  chmod -R u=rwX,go=rX "/$to"
  rm -rf unpacked
done <npm.list
while IFS='	' read -r link target; do
  mkdir -p "$(dirname "/$link")"
  ln -sfn "$target" "/$link"
done <links.list

id user >/dev/null 2>&1 || useradd --uid 1000 --create-home --shell /bin/bash user
mkdir -p /workspace /usr/share/doc/dreamcore
chown user: /workspace
cp image.json notices/* /usr/share/doc/dreamcore/

# What is installed is what the lock names, to the version.
while IFS='	' read -r name version; do
  have=$(dpkg-query --show --showformat '${Version}' "$name")
  [ "$have" = "$version" ] || { echo "$name is $have and not $version" >&2; exit 1; }
done <packages.list
cd /
rm -rf "$here"
