//! `-o fakeroot`: every user with access has root's permissions in the mount, except for checks that the
//! kernel makes itself. Compared with fuse2fs of e2fsprogs under the same user.

use throughline_testing::program::{find, has};

use super::user::script;
use super::*;

/// An image with a tree that only root may change or read.
fn roots_image() -> Image {
    let image = image();
    let host = image.sibling("host");
    std::fs::write(&host, "hi\n").unwrap();
    ok([
        "mkdir",
        "-m",
        "700",
        &image.at("/secret"),
        &image.at("/bin"),
    ]);
    ok(["cp", host.to_str().unwrap(), &image.at("/secret/f")]);
    ok(["chmod", "600", &image.at("/secret/f")]);
    ok(["chown", "-R", "0:0", &image.at("/")]);
    image
}

/// Shell code that prints each call and its exit code.
const CALLS: &str = r#"
    said() { echo "$1: $2"; }
    try() { code=0; "$@" > "$OUT/out" 2> "$OUT/err" || code=$?; echo "$* = $code"; cat "$OUT/out"; sed 's/.*: //' "$OUT/err"; }
    cd "$DIR"
    try stat -c '%u:%g %a' . secret secret/f
    try ls secret
    try cat secret/f
    try sh -c 'echo x > secret/new'
    try stat -c '%u:%g %a' secret/new
    try mkdir -m 700 made
    try stat -c '%u:%g %a' made
    try chown 7:8 secret/new
    try stat -c '%u:%g %a' secret/new
    try chmod 000 secret/new
    try cat secret/new
    try sh -c 'echo y >> secret/new'
    try cat secret/new
    try chown 0:0 secret/new
    try chmod 4755 secret/f
    try stat -c '%a' secret/f
    try mkfifo fifo
    try ln secret/f linked
    try ln -s secret/f soft
    try mv secret/new secret/old
    try truncate -s 5 secret/old
    try touch -d @86400 secret/old
    try stat -c '%Y %s' secret/old
    try mkdir -p sticky/other
    try chmod 1777 sticky
    try chown 9:9 sticky sticky/other
    try rm -r sticky
    try rm -r secret
    try ls
"#;

/// The output of the calls on a mount made by `program`, as that user.
fn output_of(program: &Path, options: &str, how: &str) -> Option<String> {
    let image = roots_image();
    let point = Point::new(&image, "mnt");
    std::fs::set_permissions(
        image.sibling("").join("host"),
        std::os::unix::fs::PermissionsExt::from_mode(0o644),
    )
    .unwrap();
    let calls = image.sibling("calls");
    std::fs::write(&calls, CALLS).unwrap();
    let program_file = program.display();
    let calls = calls.display();
    let inside = format!(
        "export OUT=$W/out
        P=$P
        $P -o {options} $IMAGE $DIR
        sh {calls}
        cd /
        umount $DIR 2> /dev/null || fusermount3 -u $DIR"
    );
    let before = format!(
        "mkdir \"$W/out\" \"$W/ours\"
        chown 12345:12345 \"$W/out\"
        ln -s \"$W/throughline\" \"$W/ours/fuse2fs\"
        export P=\"{program_file}\"
        case $P in ours) P=\"$W/ours/fuse2fs\";; esac"
    );
    let text = match how {
        "namespace" => format!(
            "unshare -Urm true || {{ echo unshare: no user namespaces >&2; exit 0; }}
            unshare -Urm sh -ec '{}'",
            inside.replace('\'', "'\\''")
        ),
        _ => inside,
    };
    let ran = script(&image, &point, &before, &text)?;
    assert_eq!(ran.code, Some(0), "{how}: {}{}", ran.text(), ran.stderr);
    // Output of the program itself is not compared.
    let output = ran.text();
    let from = output.find("stat -c").unwrap_or_default();
    let printed = output[from..].to_owned();
    wait("no process uses the image", || {
        users_of(&image.path()).is_empty()
    });
    Some(printed)
}

#[track_caller]
fn root_inside(how: &str, owner: &str) {
    if skipped() || !has(&["setpriv", "unshare", "fusermount3"]) {
        return;
    }
    let Some(ours) = output_of(Path::new("ours"), "fakeroot", how) else {
        return;
    };
    for text in [
        "cat secret/f = 0\nhi\n",
        "cat secret/new = 0\nx\ny\n",
        "made = 0\nOWNER 700\n",
        "rm -r secret = 0\n",
    ] {
        let text = text.replace("OWNER", owner);
        assert!(ours.contains(&text), "no {text:?}: {ours}");
    }
    if how == "user" {
        // In a namespace with a single user, the kernel itself refuses other owners, without a request to the
        // server.
        assert!(ours.contains("secret/new = 0\n7:8 644\n"), "{ours}");
    }
    let Some(real) = find("fuse2fs") else {
        throughline_testkit::missing!("fuse2fs is not installed");
        return;
    };
    let real = output_of(&real, "fakeroot", how).unwrap();
    assert_eq!(ours, real, "{how}: ours, and fuse2fs's");
}

#[test]
fn a_users_mount_is_the_users() {
    root_inside("user", "12345:12345");
}

/// As Apptainer mounts for a user without root.
#[test]
fn root_of_a_namespace_is_root_inside() {
    root_inside("namespace", "0:0");
}

/// With `default_permissions`, the kernel checks permissions.
#[test]
fn default_permissions_are_checked_all_the_same() {
    if skipped() {
        return;
    }
    let Some(printed) = output_of(Path::new("ours"), "fakeroot,default_permissions", "user") else {
        return;
    };
    assert!(
        printed.contains("cat secret/f = 1\nPermission denied\n"),
        "{printed}"
    );
}
