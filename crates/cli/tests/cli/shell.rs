//! `shell`: many commands on one open image.

use std::fs;

use crate::common::{Image, fails, ok, run, run_with_input, tools_are_missing};
use crate::copy::str;

#[test]
fn a_script_from_a_pipe_a_file_and_the_command_line() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext4"]);
    let host = image.beside("motd");
    fs::write(&host, b"hello\n").unwrap();
    let path = image.path();
    let path = str(&path);
    let script = format!(
        "# a comment\n\
         mkdir /etc 'a b'\n\
         \n\
         cd /etc   # another\n\
         cp host:{host} .\n\
         cp host:{host} \"/a b/again\"\n\
         ln -s ../etc/motd link\n\
         ln motd hard\n\
         chmod 600 m*\n\
         pwd\n\
         cat motd\n\
         cat link\n\
         ls -1 /\n\
         cd ../'a b'\n\
         ls\n\
         cp again host:{host}.back\n\
         exit\n\
         rm -r /etc\n",
        host = host.display()
    );
    let wanted = "/etc\nhello\nhello\na b\netc\nlost+found\nagain\n";
    let ran = run_with_input(["shell", path], script.as_bytes());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    // Bare places are shown as they are anywhere.
    assert_eq!(ran.text(), wanted);
    image.assert_clean();
    assert_eq!(ok(["readlink", &image.at("/etc/link")]), "../etc/motd\n");
    assert_eq!(
        ok(["stat", "-c", "%a %h", &image.at("/etc/motd")]),
        "600 2\n"
    );
    assert_eq!(
        fs::read(format!("{}.back", host.display())).unwrap(),
        b"hello\n"
    );
    let file = image.beside("script");
    fs::write(&file, "rm -r /etc '/a b'\nls /\n").unwrap();
    assert_eq!(ok(["shell", path, "-f", str(&file)]), "lost+found\n");
    let said = ok([
        "shell",
        path,
        "-c",
        "touch x",
        "-c",
        "mkdir /y",
        "-c",
        "find / -name '[xy]'",
    ]);
    assert_eq!(said, format!("{path}:/x\n{path}:/y\n"));
    image.assert_clean();
}

#[test]
fn the_first_failure_is_the_end_unless_told() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext4"]);
    let path = image.path();
    let path = str(&path);
    let ran = run_with_input(["shell", path], b"touch /a\nrm /no\ntouch /b\n");
    assert_eq!(ran.code, Some(1));
    for words in ["cannot remove", "stopped at command 2", "--keep-going"] {
        assert!(ran.stderr.contains(words), "no {words} in {}", ran.stderr);
    }
    assert_eq!(ok(["ls", &image.at("/")]), "a\nlost+found\n");
    let ran = run_with_input(["shell", "--keep-going", path], b"rm /no\ntouch /b\n");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert_eq!(ok(["ls", &image.at("/")]), "a\nb\nlost+found\n");
    // Wrong words end with 2, as on the command line.
    for line in [
        "no-such-command",
        "ls --no-such-option",
        "echo 'x",
        "mount /a /b",
        "shell /a",
        "cp a",
    ] {
        let ran = run(["shell", path, "-c", line]);
        assert_eq!(ran.code, Some(2), "{line}: {}", ran.stderr);
    }
    fails(["shell", path, "-c", "cd /a"], 1, "Not a directory");
    fails(
        ["shell", "--read-only", path, "-c", "touch /c"],
        1,
        "already open for reading",
    );
    assert_eq!(
        ok(["shell", "-r", path, "-c", "ls /a"]),
        format!("{path}:/a\n")
    );
    fails(
        [
            "shell",
            path,
            "-c",
            "cp host:/dev/null host:/dev/full",
            "-f",
            "x",
        ],
        2,
        "cannot be used with",
    );
    assert!(ok(["shell", path, "-c", "help"]).contains("find"));
    assert!(ok(["shell", path, "-c", "help cp"]).contains("--chown"));
    image.assert_clean();
}
