//! A root file system of Debian packages: packed by a user, and entered with chroot on our mount and on the
//! kernel's.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use throughline_testkit::kernel::Mount;
use throughline_testkit::program::{command, has};

use super::*;
use crate::common::assert_clean;

/// The files of packages that are installed here, as root's tar, with the links of /bin and /lib: a shell,
/// its libraries, and programs.
const ROOT: &str = r#"
for package in base-files coreutils dash libc6 libselinux1 libpcre2-8-0 libacl1 libattr1 libgmp10 libssl3; do
  dpkg -L $package 2>/dev/null || true
done | grep -vE '^/usr/share/(doc|man|locale|info)/' > list
printf '/bin\n/lib\n/lib64\n/usr/bin\n' >> list
sort -u list | while read -r path; do
  if [ -e "$path" ] || [ -L "$path" ]; then echo ".$path"; fi
done > there
tar -C / --no-recursion --numeric-owner -T there -cf root.tar
"#;

/// What is done inside. The output does not depend on what it is mounted by.
const INSIDE: &str = r#"
set -e; PATH=/usr/bin:/bin; export LC_ALL=C
[ "$(id -u)" = 0 ]; cd /; ls -a /; readlink /bin || true
stat -c '%n %a %u:%g %h %F %s %Y' /etc/* /usr/bin/* /tmp
sha256sum /usr/bin/* 2>/dev/null | sha256sum
echo new > /tmp/file; chmod 640 /tmp/file; chown 5:6 /tmp/file; ln /tmp/file /tmp/other
mv /tmp/other /etc/moved; cat /etc/moved; stat -c '%a %u:%g %h' /tmp/file
seq 400000 > /tmp/large; sha256sum /tmp/large
rm /tmp/large /tmp/file; ls -l /etc/moved | cut -c1-10
"#;

#[test]
fn a_root_of_debian_packages_is_entered() {
    if skipped() || !has(&["dpkg", "tar", "setpriv", "chroot", "bash"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let path = |name: &str| dir.path().join(name);
    let mut bash = command("bash");
    bash.args(["-euo", "pipefail", "-c", ROOT]);
    let ran = program(bash.current_dir(dir.path()));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    // The user may not be able to reach the binary where it was built.
    let binary = path("throughline");
    fs::copy(env!("CARGO_BIN_EXE_throughline"), &binary).unwrap();
    let mut pack = command("setpriv");
    pack.args(["--reuid", "12345", "--regid", "12345", "--clear-groups"]);
    pack.arg(&binary)
        .args(["pack", "-q", "root.tar", "--size", "+16M"]);
    let ran = program(pack.args(["-o", "image"]).current_dir(dir.path()));
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""));
    let image = path("image");
    assert_clean(&image);
    fs::copy(&image, path("other")).unwrap();
    let point = Point { dir: path("mnt") };
    fs::create_dir(&point.dir).unwrap();
    let enter = || {
        let mut chroot = command("chroot");
        let ran = program(chroot.arg(&point.dir).args(["/bin/sh", "-c", INSIDE]));
        assert_eq!((ran.code, &*ran.stderr), (Some(0), ""));
        ran.text()
    };
    ok([
        "mount",
        image.to_str().unwrap(),
        point.str(),
        "-o",
        "exec,suid,dev",
    ]);
    let ours = enter();
    ok(["umount", point.str()]);
    assert_clean(&image);
    assert!(ours.lines().count() > 100, "{ours}");
    let Some(mount) = Mount::or_skip(&path("other"), &point.dir, &["-o", "loop"]) else {
        return;
    };
    let kernels = enter();
    mount.unmount();
    assert_clean(&path("other"));
    assert!(ours == kernels, "{ours}\n{kernels}");
}
