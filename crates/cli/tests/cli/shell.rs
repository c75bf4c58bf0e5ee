//! `shell`: many commands on one open image.

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use crate::common::{Image, fails, ok, run, run_with_input, str, throughline, tools_are_missing};

#[test]
fn a_script_from_a_pipe_a_file_and_the_command_line() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext4"]);
    let host = image.sibling("motd");
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
         chmod --glob 600 m*\n\
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
    // Places without an image are shown as in other commands.
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
    let file = image.sibling("script");
    fs::write(&file, "rm -r /etc '/a b'\nls /\n").unwrap();
    assert_eq!(ok(["shell", path, "-f", str(&file)]), "lost+found\n");
    let printed = ok([
        "shell",
        path,
        "-c",
        "touch x",
        "-c",
        "mkdir /y",
        "-c",
        "find / -name '[xy]'",
    ]);
    assert_eq!(printed, format!("{path}:/x\n{path}:/y\n"));
    image.assert_clean();
}

#[test]
fn the_first_failure_ends_the_shell_unless_told_to_keep_going() {
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
    // For a wrong command line, the exit code is 2, as outside of the shell.
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

#[test]
fn listings_without_a_place_show_the_current_directory() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext4"]);
    ok(["mkdir", "-p", &image.at("/a/b/c/d")]);
    let path = image.path();
    let path = str(&path);
    // Whether an option takes its value as a separate word makes no difference.
    for line in [
        "ls",
        "ls -l --full-time",
        "tree",
        "tree -L 2",
        "tree -L2",
        "du -d 1",
        "du -h",
        "df",
        "lsattr",
        "find -name c",
        "find",
        "--json tree -L 1",
        "-q ls -1",
    ] {
        let bare = ok(["shell", path, "-c", "cd /a/b", &format!("--command={line}")]);
        let given = match line.split_once("find") {
            Some((_, expression)) => format!("find . {expression}"),
            None => format!("{line} ."),
        };
        let given = ok([
            "shell",
            path,
            "-c",
            "cd /a/b",
            &format!("--command={given}"),
        ]);
        assert_eq!(bare, given, "{line}");
        assert!(!bare.is_empty(), "{line}");
    }
    // Of other commands, and of options without their value, nothing is guessed.
    for line in ["cat", "rm -r", "stat", "tree -L", "du --no-such"] {
        let ran = run(["shell", path, "-c", line]);
        assert_eq!(ran.code, Some(2), "{line}: {}", ran.stderr);
    }
    assert!(ok(["shell", path, "-c", "ls --help"]).contains("Usage"));
    fails(["find", "-name", "c"], 2, "the paths come first");
}

/// An option that would have no effect on one line is not accepted there.
#[test]
fn global_options_of_a_line_have_an_effect_or_are_refused() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext4"]);
    let path = image.path();
    let path = str(&path);
    for option in [
        "--offset=1M",
        "--engine=threads",
        "--direct",
        "--host-cache",
        "--cache=64M",
        "--dirty-limit=8M",
        "--dirty-background=4M",
        "--readahead=0",
        "--bio-target=4096",
        "--commit=1",
        "--noload",
        "--log=debug",
        "--log-file=log",
    ] {
        let (name, _) = option.split_once('=').unwrap_or((option, ""));
        let why = format!("{name} has no effect");
        for line in [format!("ls / {option}"), format!("{option} ls /")] {
            fails(["shell", path, &format!("--command={line}")], 2, &why);
        }
        let root = image.at("/");
        let words = ["find", &root, "-exec", "stat", option, "{}", ";"];
        fails(words, 2, &why);
        // Given to the whole run, it applies to all of its commands.
        if option != "--offset=1M" {
            let words = [option, "shell", path, "-r", "-c", "ls /"];
            let ran = throughline()
                .args(words)
                .current_dir(image.sibling(""))
                .output();
            assert_eq!(ran.unwrap().status.code(), Some(0), "{option}");
        }
    }
    // --quiet applies to its line alone.
    let note = "no image is involved";
    let host = image.sibling("host");
    fs::write(&host, b"x").unwrap();
    let copy = format!("cp host:{0} host:{0}.copy", str(&host));
    let ran = run(["shell", path, "-r", &format!("--command=-q {copy}")]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let ran = run([
        "shell",
        path,
        "-r",
        "-c",
        &format!("{copy} -q"),
        "-c",
        &copy,
    ]);
    assert_eq!(ran.stderr.matches(note).count(), 1, "{}", ran.stderr);
}

/// On a terminal, lines can be edited, completed and recalled. script(1) provides the terminal.
#[test]
fn a_person_types_and_is_helped() {
    if tools_are_missing() {
        return;
    }
    if Command::new("script").arg("--version").output().is_err() {
        throughline_testkit::missing!("script(1) is missing");
        return;
    }
    let image = Image::new("16M", &["-t", "ext4"]);
    ok(["mkdir", &image.at("/directory")]);
    let state = image.sibling("state");
    let typed = |lines: &[&str]| {
        let shell = format!(
            "{} shell {}",
            env!("CARGO_BIN_EXE_throughline"),
            image.path().display()
        );
        let mut script = Command::new("script");
        script
            .args(["-qec", &shell, "/dev/null"])
            .env("XDG_STATE_HOME", &state)
            .env("TERM", "xterm");
        let mut script = script
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut keys, mut shown) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
        for line in lines {
            // Each line starts with this sequence, followed by the prompt.
            wait_for(&mut shown, b"\x1b[?2004h");
            wait_for(&mut shown, b"> ");
            keys.write_all(line.as_bytes()).unwrap();
        }
        let rest = std::io::read_to_string(shown).unwrap();
        assert!(script.wait().unwrap().success(), "{rest}");
    };
    // Tab completes a command and a name, ^C drops a line, Backspace deletes a letter.
    typed(&[
        "mkd\t/neww\x7f\r",
        "touch kept\x03",
        "cd di\t\r",
        "touch insidd\x7fe\r",
        "exit\r",
    ]);
    assert_eq!(
        ok(["find", &image.at("/"), "-printf", "%P "]).trim(),
        "directory directory/inside lost+found new"
    );
    // Recalls the line before the last. `directory/inside` is then created relative to the current directory,
    // the root.
    typed(&["\x1b[A\x1b[A\r", "\x04"]);
    assert_eq!(
        ok(["ls", &image.at("/")]),
        "directory\ninside\nlost+found\nnew\n"
    );
    let kept = fs::read_to_string(state.join("throughline/history")).unwrap();
    assert!(
        kept.contains("touch inside") && !kept.contains("touch kept"),
        "{kept}"
    );
    image.assert_clean();
}

/// Reads up to and including these bytes.
fn wait_for(from: &mut impl Read, wanted: &[u8]) {
    let mut seen = Vec::new();
    while !seen.ends_with(wanted) {
        let mut byte = [0];
        from.read_exact(&mut byte)
            .unwrap_or_else(|error| panic!("{error} behind {:?}", String::from_utf8_lossy(&seen)));
        seen.push(byte[0]);
    }
}
