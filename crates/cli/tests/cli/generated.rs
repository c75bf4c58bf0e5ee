//! Help, completions and manual pages, and the exit of the binary.

use std::io::Read;
use std::process::Stdio;

use crate::common::{Image, fails, ok, run, throughline, tools_are_missing};

/// All but `lab`, which is another program.
const COMMANDS: [&str; 41] = [
    "info",
    "mkfs",
    "pack",
    "ls",
    "tree",
    "stat",
    "cat",
    "cp",
    "rm",
    "mkdir",
    "mv",
    "ln",
    "readlink",
    "chmod",
    "chown",
    "touch",
    "find",
    "mknod",
    "getfattr",
    "setfattr",
    "getfacl",
    "setfacl",
    "lsattr",
    "chattr",
    "label",
    "uuid",
    "shell",
    "truncate",
    "df",
    "du",
    "tune",
    "replay",
    "resize",
    "mount",
    "umount",
    "status",
    "install-fuse2fs",
    "install-mke2fs",
    "install-helpers",
    "completions",
    "man",
];

#[test]
fn every_command_has_help() {
    for command in COMMANDS {
        assert!(ok([command, "--help"]).contains("Usage:"), "{command}");
        assert!(
            ok([command, "--help"]).contains("\nExamples:\n"),
            "{command}"
        );
    }
    let cp = ok(["cp", "--help"]);
    assert!(cp.contains("Symbolic links below the target are not followed"));
    assert!(
        cp.contains("\n    throughline cp -a rootfs/. disk.img:/\n"),
        "{cp}"
    );
    assert!(ok(["ln", "--help"]).contains("symbolic link is text"));
    let replay = ok(["replay", "--help"]);
    assert!(replay.contains("\n  8    recovery failed"), "{replay}");
}

/// The first screen names the commands; options and other things have pages of their own.
#[test]
fn help_is_one_screen() {
    let all = ok(["--help"]);
    assert!(all.lines().count() <= 40, "{all}");
    for same in [&["help"][..], &["-h"], &["-q", "--help"]] {
        assert_eq!(ok(same), all, "{same:?}");
    }
    let none = run::<&str>([]);
    assert_eq!((none.code, none.stderr), (Some(2), all.clone()));
    let last = all.lines().last().unwrap_or_default();
    assert!(last.contains("throughline help options"), "{all}");
    let json: serde_json::Value = run(["help", "json"]).json();
    assert_eq!(json["properties"]["ls"]["type"], "array");
    fails(["help", "no-such"], 2, "unrecognized subcommand");
}

#[test]
fn completions_and_manual_pages_come_from_the_same_model() {
    for shell in ["bash", "zsh", "fish"] {
        let text = ok(["completions", shell]);
        assert!(
            COMMANDS.iter().all(|command| text.contains(command)),
            "{shell}"
        );
    }
    assert!(ok(["man"]).contains(".TH throughline 1"));
    let dir = tempfile::tempdir().unwrap();
    ok(["man", dir.path().to_str().unwrap()]);
    for command in COMMANDS {
        assert!(
            dir.path().join(format!("throughline-{command}.1")).exists(),
            "{command}"
        );
    }
}

/// Every page has examples and references. The options of all commands are only on the main page.
#[test]
fn manual_pages_have_examples_and_lead_on() {
    let dir = tempfile::tempdir().unwrap();
    ok(["man", dir.path().to_str().unwrap()]);
    let page = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    for command in COMMANDS {
        let page = page(&format!("throughline-{command}.1"));
        for section in [
            ".SH \"EXIT STATUS\"",
            ".SH EXAMPLES",
            ".SH \"SEE ALSO\"",
            "throughline\\fR(1)",
        ] {
            assert!(page.contains(section), "{command}: no {section} in {page}");
        }
        assert!(
            page.contains(&format!("throughline {}", command.replace('-', "\\-"))),
            "{command}"
        );
        assert!(
            !page.contains("dirty\\-background"),
            "{command} has options for all commands"
        );
    }
    for name in [
        "throughline.1",
        "throughline-mkfs.1",
        "throughline-pack.1",
        "throughline-shell.1",
        "throughline-mount.1",
        "fuse2fs.1",
    ] {
        let page = page(name);
        let sections = ["\"EXIT STATUS\"", "ENVIRONMENT", "FILES", "EXAMPLES"];
        let at = sections.map(|title| page.find(&format!("\n.SH {title}\n")));
        assert!(
            at.iter().all(Option::is_some) && at.is_sorted(),
            "{name}: {at:?}"
        );
    }
    let main = page("throughline.1");
    assert!(main.contains("dirty\\-background") && main.contains("fuse2fs"));
    assert!(!main.contains("complete\\-place"));
    for (name, words) in [
        ("fuse2fs.1", "install\\-fuse2fs"),
        ("mount.fuse.throughline.8", "/etc/fstab"),
    ] {
        let page = page(name);
        assert!(
            page.contains(words) && page.contains("allow_other"),
            "{page}"
        );
    }
    assert_formats(dir.path());
}

/// The formatter of manual pages prints no warnings for those in a directory.
fn assert_formats(pages: &std::path::Path) {
    for entry in std::fs::read_dir(pages).unwrap() {
        let path = entry.unwrap().path();
        let formatted = std::process::Command::new("groff")
            .args(["-k", "-man", "-Tutf8", "-ww", "-z"])
            .arg(&path)
            .output();
        let Ok(formatted) = formatted else {
            throughline_testkit::missing!("groff is not installed");
            return;
        };
        let printed = String::from_utf8_lossy(&formatted.stderr);
        let wrong: Vec<&str> = printed
            .lines()
            .filter(|line| !line.contains("cannot adjust") && !line.contains("can't break"))
            .collect();
        assert!(wrong.is_empty(), "{}: {wrong:?}", path.display());
    }
}

#[test]
fn options_for_all_commands_are_shown_once() {
    let options = ok(["help", "options"]);
    for part in ["--dirty-background", "--json", "THROUGHLINE_URLS"] {
        assert!(options.contains(part), "{options}");
    }
    assert!(!ok(["--help"]).contains("--dirty-background"));
    for command in ["ls", "cp", "mount"] {
        let help = ok([command, "--help"]);
        assert!(!help.contains("--dirty-background"), "{help}");
        assert!(help.contains("throughline help options"), "{help}");
    }
    // The options of all commands are still accepted after a command's name.
    fails(["ls", "--dirty-background", "1q", "x:/"], 2, "invalid size");
}

#[test]
fn places_in_images_are_completed() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    ok(["mkdir", "-p", &image.at("/etc/app"), &image.at("/a b")]);
    ok(["touch", &image.at("/etc/apt"), &image.at("/etc/.hidden")]);
    let complete = |path: &str| ok(["complete-place", &image.at(path)]);
    assert_eq!(complete("/et"), format!("{}/\n", image.at("/etc")));
    let both = format!("{}/\n{}\n", image.at("/etc/app"), image.at("/etc/apt"));
    assert_eq!(complete("/etc/"), both);
    assert_eq!(complete("/etc/ap"), both);
    assert_eq!(
        complete("/etc/."),
        format!("{}\n", image.at("/etc/.hidden"))
    );
    for none in [
        image.at("/no/such"),
        "no-such.img:/x".into(),
        "/etc/pass".into(),
    ] {
        assert_eq!(ok(["complete-place", &none]), "", "{none}");
    }
    // Calls the completion as bash does, where the colon breaks words.
    let binary = throughline();
    let dir = std::path::Path::new(binary.get_program()).parent().unwrap();
    let script = format!(
        "PATH={}:$PATH; source <(throughline completions bash)
         COMP_LINE='throughline ls {}'; COMP_POINT=${{#COMP_LINE}}; COMP_WORDS=(throughline ls x); COMP_CWORD=2
         _throughline_places throughline x ls; printf '%s\n' \"${{COMPREPLY[@]}}\"
         COMP_LINE='throughline ls {}'; COMP_POINT=${{#COMP_LINE}}
         _throughline_places throughline x ls; printf '%s\n' \"${{COMPREPLY[@]}}\"
         COMP_LINE='throughline tre'; COMP_POINT=${{#COMP_LINE}}; COMP_WORDS=(throughline tre); COMP_CWORD=1
         _throughline_places throughline tre throughline; printf '%s\n' \"${{COMPREPLY[@]}}\"",
        dir.display(),
        image.at("/etc/ap"),
        image.at("/a"),
    );
    let bash = std::process::Command::new("bash")
        .args(["-c", &script])
        .output();
    let Ok(bash) = bash else {
        throughline_testkit::missing!("bash is not installed");
        return;
    };
    let printed = String::from_utf8_lossy(&bash.stdout);
    assert_eq!(
        printed,
        "/etc/app/\n/etc/apt\n/a\\ b/\ntree\n",
        "{}",
        String::from_utf8_lossy(&bash.stderr)
    );
}

#[test]
fn usage_errors_end_with_2() {
    fails(["no-such-command"], 2, "unrecognized subcommand");
    fails(["ls"], 2, "required");
    fails(["ls", "/etc"], 2, "IMAGE:/path");
    fails(["ls", "--offset", "12q", "x:/"], 2, "invalid size");
    fails(["cp", "only-one"], 2, "missing destination");
    fails(["--engine", "magic", "ls", "x:/"], 2, "possible values");
    assert_eq!(run::<&str>([]).code, Some(2));
}

#[test]
fn an_image_without_a_path_is_explained() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    fails(["ls", image.str()], 2, &image.at("/"));
}

#[test]
fn a_closed_pipe_is_no_error_to_talk_about() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    ok(["truncate", "-s", "16M", &image.at("/zeroes")]);
    let mut child = throughline()
        .args(["cat", &image.at("/zeroes")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0xffu8];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(141));
}
