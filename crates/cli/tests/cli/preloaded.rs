//! A preloaded library replaces the calls on host files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use throughline_testing::program::{has, run_on};

use crate::common::{Image, ok, str, throughline, tools_are_missing};
use crate::is_static;

/// Copies owners, modes and devices out of an image and into two others, by `cp` and by `pack`, as a user who
/// may not change owners.
#[test]
fn fakeroot_remembers_what_a_copy_sets() {
    if tools_are_missing()
        || !throughline_testkit::tier::as_root()
        || !has(&["fakeroot", "setpriv"])
        || is_static()
    {
        return;
    }
    let [image, back, packed] =
        [(); 3].map(|()| Image::new("16M", &["-t", "ext4", "-E", "root_owner=3:4"]));
    let file = image.sibling("file");
    fs::write(&file, "bytes").unwrap();
    ok(["-q", "cp", str(&file), &image.at("/file")]);
    ok(["mkdir", &image.at("/dir")]);
    ok(["mknod", &image.at("/dir/null"), "c", "1", "3"]);
    ok(["chown", "7:8", &image.at("/file")]);
    ok(["chmod", "4755", &image.at("/file")]);
    ok(["chown", "9:10", &image.at("/dir"), &image.at("/dir/null")]);
    ok(["mknod", &image.at("/fifo"), "p"]);
    ok(["ln", "-s", "file", &image.at("/link")]);
    ok([
        "chown",
        "-h",
        "11:12",
        &image.at("/fifo"),
        &image.at("/link"),
    ]);
    ok(["chmod", "2751", &image.at("/fifo")]);
    let folder = image.sibling("");
    fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
    for image in [&image, &back, &packed] {
        fs::set_permissions(image.sibling(""), PermissionsExt::from_mode(0o777)).unwrap();
        std::os::unix::fs::chown(image.path(), Some(12345), Some(12345)).unwrap();
    }
    // This user may have no access to the binary's directory, so the binary is passed as an open descriptor.
    let binary = fs::File::open(throughline().get_program()).unwrap();
    let text = "exec 9<&0 < /dev/null; cd \"$1\"; T=/proc/self/fd/9
        mkdir out; $T -q cp -a \"$2:/.\" out
        stat -c '%n %u:%g %a %F %t:%T' out/file out/dir out/dir/null out/fifo out/link
        cp -a out again
        $T -q cp -a again/. \"$3:/\"
        $T -q pack -F again -o \"$4\"
        rm -r out again";
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=12345", "--regid=12345", "--clear-groups"])
        .args(["fakeroot", "sh", "-ec", text, "sh"])
        .args([&folder, &image.path(), &back.path(), &packed.path()]);
    let ran = run_on(&mut command, Stdio::from(binary), Duration::from_secs(300));
    let ran = ran.good("fakeroot");
    assert_eq!(ran.stderr, "");
    let expected = "out/file 7:8 4755 regular file 0:0\nout/dir 9:10 755 directory 0:0\n\
                out/dir/null 9:10 644 character special file 1:3\n\
                out/fifo 11:12 2751 fifo 0:0\nout/link 11:12 777 symbolic link 0:0\n";
    assert_eq!(ran.stdout, expected);
    for at in [&image, &back, &packed] {
        at.assert_clean();
        let shown = ok([
            "stat",
            "-c",
            "%u:%g %a %t:%T",
            &at.at("/file"),
            &at.at("/dir/null"),
            &at.at("/fifo"),
            &at.at("/link"),
        ]);
        let expected = "7:8 4755 0:0\n9:10 644 1:3\n11:12 2751 0:0\n11:12 777 0:0\n";
        assert_eq!(shown, expected);
    }
}
