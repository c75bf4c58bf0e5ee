//! Compares commands with the tools of the same names: the same tree in an image and on the host gives the
//! same output.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;

use crate::common::{
    Image, fails, noise, ok, run, run_with_input, str, throughline, tools_are_missing,
};

/// A tree on the host, and its copy in an image at `/t`.
struct Both {
    image: Image,
    host: PathBuf,
}

impl Both {
    fn new() -> Option<Both> {
        if tools_are_missing() {
            return None;
        }
        let image = Image::new("32M", &["-t", "ext4"]);
        let host = image.sibling("t");
        for dir in ["a/b", "empty", ".hidden"] {
            fs::create_dir_all(host.join(dir)).unwrap();
        }
        for (name, bytes) in [
            ("one.txt", 10),
            ("two.txt", 5000),
            ("a/three.c", 100_000),
            ("a/b/x.txt", 0),
            (".dot", 3),
        ] {
            fs::write(host.join(name), noise(bytes, 3)).unwrap();
        }
        symlink("a/three.c", host.join("link")).unwrap();
        symlink("../one.txt", host.join("a/up")).unwrap();
        symlink("nowhere", host.join("broken")).unwrap();
        let run = fs::Permissions::from_mode(0o755);
        fs::set_permissions(host.join("a/three.c"), run).unwrap();
        let set = fs::Permissions::from_mode(0o4711);
        fs::set_permissions(host.join("two.txt"), set).unwrap();
        let old = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
        let times = fs::FileTimes::new().set_accessed(old).set_modified(old);
        fs::File::open(host.join("one.txt"))
            .unwrap()
            .set_times(times)
            .unwrap();
        ok(["cp", "-a", str(&host), &image.at("/")]);
        Some(Both { image, host })
    }

    /// The output of a tool in the host's tree. Places `t/…` are passed unchanged.
    fn theirs(&self, script: &str) -> String {
        let output = Command::new("sh")
            .args(["-c", script])
            .current_dir(self.host.parent().unwrap())
            .env("TZ", "UTC")
            .env("LC_ALL", "C")
            .env("COLUMNS", "60")
            .env_remove("LS_COLORS")
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Our output for the same command, with `IMAGE:/t/…` for `t/…`. Places in it are converted back.
    fn ours(&self, arguments: &str) -> String {
        let image = format!("{}:/", self.image.path().display());
        let words = shell_words(arguments);
        let words = words.iter().map(|word| match word.strip_prefix("t") {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{image}t{rest}"),
            _ => word.clone(),
        });
        let output = throughline()
            .args(words)
            .env("COLUMNS", "60")
            .output()
            .unwrap();
        assert!(
            output.stderr.is_empty(),
            "{arguments}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).replace(&image, "")
    }

    /// Asserts that both outputs are equal after `normal` has removed permitted differences.
    #[track_caller]
    fn alike_but(&self, command: &str, normal: impl Fn(&str) -> String) {
        let (theirs, ours) = (normal(&self.theirs(command)), normal(&self.ours(command)));
        assert!(!theirs.is_empty(), "{command} says nothing");
        assert_eq!(ours, theirs, "{command}");
    }

    #[track_caller]
    fn alike(&self, command: &str) {
        self.alike_but(command, str::to_owned);
    }
}

/// Splits into words; supports single quotes only.
fn shell_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, part) in text.split('\'').enumerate() {
        match at % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

fn sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

#[test]
fn ls_shows_what_ls_shows() {
    let Some(both) = Both::new() else { return };
    for command in [
        "ls t",
        "ls -F t",
        "ls -Fa t",
        "ls -p t",
        "ls -1 t",
        "ls -r t",
        "ls -S t",
        "ls -F t/link",
        "ls t/one.txt t/a",
    ] {
        both.alike(command);
    }
    // Columns are separated by tabs or blanks.
    let blanks = |text: &str| {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        text.lines().map(words).collect::<Vec<_>>().join("\n")
    };
    both.alike_but("ls -C t", blanks);
    both.alike_but("ls -CF t/a", blanks);
    // Blocks, link counts of directories and inode numbers depend on the file system.
    let files = |text: &str| {
        let lines = text
            .lines()
            .filter(|line| line.starts_with('-') || line.starts_with('l'));
        lines
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>()
            .join("\n")
    };
    for command in [
        "ls -l t",
        "ls -ln t/a",
        "ls --full-time t",
        "ls -g t",
        "ls -o t",
    ] {
        both.alike_but(command, files);
    }
    let coloured = ok(["ls", "--color=always", &both.image.at("/t")]);
    assert!(coloured.contains("\u{1b}[1;34ma\u{1b}[0m"), "{coloured:?}");
    assert!(!ok(["ls", "--color=never", &both.image.at("/t")]).contains('\u{1b}'));
    ok(["setfacl", "-m", "u:5:r", &both.image.at("/t/one.txt")]);
    let long = ok(["ls", "-l", &both.image.at("/t")]);
    assert!(long.contains("-rw-r--r--+ "), "{long}");
    assert_eq!(long.matches('+').count(), 1, "{long}");
}

#[test]
fn stat_readlink_and_du() {
    let Some(both) = Both::new() else { return };
    for format in [
        "%n %s %a %A %u %g %U %G %F %h %f",
        "%N",
        "%Y %y|%10s|%-6s|%06s|%%",
        "%t %T %W",
    ] {
        let normal = |text: &str| text.replace("\u{2018}", "'").replace("\u{2019}", "'");
        for file in ["t/one.txt", "t/link", "t/two.txt", "t/a/b/x.txt"] {
            if format.contains("%W") && file != "t/link" {
                continue;
            }
            // The birth time is not copied.
            let format = format.replace(" %W", "");
            both.alike_but(&format!("stat -c '{format}' {file}"), normal);
        }
    }
    assert_eq!(both.ours("stat --printf '%s\\n%a' t/one.txt"), "10\n644");
    fails(
        ["stat", "-c", "%q", &both.image.at("/t")],
        2,
        "invalid directive",
    );
    assert_eq!(both.ours("readlink -f t/a/up"), "/t/one.txt\n");
    assert_eq!(both.ours("readlink -f t/a/b/../../missing"), "/t/missing\n");
    assert_eq!(both.ours("readlink -m t/no/such/../x"), "/t/no/x\n");
    fails(
        ["readlink", "-e", &both.image.at("/t/missing")],
        1,
        "No such file",
    );
    fails(
        ["readlink", "-f", &both.image.at("/t/no/such")],
        1,
        "No such file",
    );
    let du = |text: &str| {
        let lines = text
            .lines()
            .filter(|line| line.contains('.') || line.ends_with("total"));
        lines.collect::<Vec<_>>().join("\n")
    };
    both.alike_but("du -cb t/one.txt t/two.txt", du);
    let df = ok(["df", "-T", both.image.str()]);
    assert!(df.contains(" Type ") && df.contains(" ext4 "), "{df}");
}

#[test]
fn find_finds_what_find_finds() {
    let Some(both) = Both::new() else { return };
    for command in [
        "find t",
        "find t -type f",
        "find t -type l,d",
        "find t -name '*.txt'",
        "find t -iname 'ONE*'",
        "find t -path '*/b/*'",
        "find t -not -type d -size +4k",
        "find t -size -1k -type f",
        "find t -size 10c",
        "find t -empty",
        "find t -maxdepth 1",
        "find t -mindepth 2 -maxdepth 2",
        "find t -perm 4711",
        "find t -perm -111 -type f",
        "find t -perm /4000",
        "find t -newer t/one.txt -type f",
        "find t -mtime +1000",
        "find t -mmin -600 -type f",
        "find t -type f -links 1 -a ! -name '.*'",
        "find t ( -name one.txt -o -name two.txt ) -print",
        "find t -name a -prune -o -print",
        "find t -uid 0 -gid -5 -type d",
        "find t -depth -name 'x*'",
        "find t -regex '.*/[a-z]+\\.\\(txt\\|c\\)'",
        "find t -regextype posix-extended -regex '.*/(one|x)\\.[[:alpha:]]{3}'",
        "find t -regextype posix-basic -iregex '.*ONE\\.tx\\{1,2\\}t*'",
        "find t -mindepth 1 -printf '%p|%f|%h|%H|%P|%d|%y|%Y|%l|%m|%#m|%M\\n'",
        "find t -type f -printf '%s %n %u:%g %U:%G [%12f] [%-12f] %%\\t\\101\\n'",
        "find t -name one.txt -printf '%t|%T@|%TY-%Tm-%Td %TH:%TM:%TS|%T+|%Tc|%Tk:%Tl %Tp %Tr|%TX|%Tj %TU %Tw %Tb %TB %Ta %TA\\n'",
        "find t -name one.txt -printf 'a\\cb'",
        "find t -name '*.txt' -exec stat -c %s:%n {} ;",
        "find t -name '*.txt' -exec stat -c %s:%n {} +",
    ] {
        let quoted = command
            .replace("( ", "\\( ")
            .replace(" )", " \\)")
            .replace("! ", "\\! ")
            .replace(" ;", " \\;");
        let (theirs, ours) = (sorted(&both.theirs(&quoted)), sorted(&both.ours(command)));
        assert_eq!(ours, theirs, "{command}");
    }
    assert_eq!(both.ours("find t -name one.txt -print0"), "t/one.txt\0");
    assert!(both.ours("find t -name one.txt -ls").contains("-rw-r--r--"));
    let place = both.image.at("/t");
    ok([
        "find", &place, "-type", "f", "-exec", "chmod", "600", "{}", "+",
    ]);
    ok([
        "find", &place, "-name", "two.txt", "-exec", "mv", "{}", "{}.old", ";",
    ]);
    let there = "find t -type f -printf %f:%m, -exec cp {} /dev/null ;";
    assert_eq!(
        both.ours(there),
        ".dot:600,x.txt:600,three.c:600,one.txt:600,two.txt.old:600,"
    );
    // With `;`, a failing command makes the test false; with `+`, it fails the search.
    let found = run([
        "find", &place, "-name", "one.txt", "-exec", "ls", "{}x", ";", "-print",
    ]);
    assert_eq!((found.code, found.text().as_str()), (Some(0), ""));
    fails(
        ["find", &place, "-exec", "cat", "{}", "+"],
        1,
        "Is a directory",
    );
    ok(["find", &place, "-name", "*.txt", "-delete"]);
    assert_eq!(both.ours("find t -name *.txt"), "");
    ok(["find", &both.image.at("/t/a"), "-delete"]);
    fails(["ls", &both.image.at("/t/a")], 1, "No such file");
    for (words, why) in [
        (&["-exec", "rm"][..], "needs a value"),
        (&["-exec", ";"], "without a command"),
        (
            &["-exec", "sh", "-c", "true", ";"],
            "unrecognized subcommand",
        ),
        (&["-exec", "ls", "{}", "{}", "+"], "must occur once"),
        (
            &["-exec", "mount", "{}", "/mnt", ";"],
            "does not work on files",
        ),
        (&["-regex", "\\("], "not a regular expression"),
        (&["-printf", "%Q"], "invalid directive"),
        (&["-execdir", "ls", ";"], "is not supported"),
    ] {
        fails([&["find", &place][..], words].concat(), 2, why);
    }
    fails(["find", "-name", "x"], 2, "the paths come first");
    both.image.assert_clean();
}

#[test]
fn patterns_in_an_image() {
    let Some(both) = Both::new() else { return };
    let at = |path: &str| both.image.at(path);
    assert_eq!(both.ours("ls t/*.txt"), "t/one.txt\nt/two.txt\n");
    assert_eq!(
        both.ours("cat t/on?.t[x]t").len(),
        both.theirs("cat t/on?.t[x]t").len()
    );
    let out = both.image.sibling("out");
    fs::create_dir(&out).unwrap();
    ok(["cp", &at("/t/*.txt"), &at("/t/a/th*"), str(&out)]);
    assert_eq!(fs::read_dir(&out).unwrap().count(), 3);
    ok(["mkdir", &at("/into")]);
    ok(["cp", "-a", &at("/t/*"), &at("/into")]);
    ok(["mv", "--glob", &at("/into/*.txt"), &at("/into/empty")]);
    assert_eq!(ok(["ls", &at("/into/empty")]), "one.txt\ntwo.txt\n");
    ok(["rm", "-r", "--glob", &at("/into/*")]);
    // As in a shell, patterns do not match names with a leading dot.
    assert_eq!(ok(["ls", "-A", &at("/t/*/b/")]), "x.txt\n");
    ok(["rm", "--glob", &at("/t/*.txt")]);
    assert_eq!(both.ours("find t -name *.txt"), "t/a/b/x.txt\n");
    fails(["rm", "--glob", &at("/t/*.txt")], 1, "No such file");
    // If a file with exactly this name exists, the pattern means that file.
    ok(["touch", &at("/t/[x]"), &at("/t/x")]);
    ok(["rm", "--glob", &at("/t/[x]")]);
    assert_eq!(ok(["ls", &at("/t/x")]), format!("{}\n", at("/t/x")));
    both.image.assert_clean();
}

/// The shell's quotes do not reach us: a quoted name of a missing file is no other file.
#[test]
fn names_of_what_is_changed_are_no_patterns() {
    let Some(both) = Both::new() else { return };
    let at = |path: &str| both.image.at(path);
    ok(["touch", &at("/report1"), &at("/report2")]);
    let listed = || ok(["ls", "-l", &at("/")]);
    let before = listed();
    let matched = |words: &[&str], path: &str, hint: &str| {
        let place = at(path);
        let words = [words, &[&place]].concat();
        fails(words, 1, hint);
    };
    let (one, two) = (
        "as a pattern it matches 1 name: --glob expands it",
        "as a pattern it matches 2 names: --glob expands it",
    );
    for words in [
        &["rm"][..],
        &["chmod", "700"],
        &["chown", "1"],
        &["chattr", "+d"],
        &["setfattr", "-n", "user.a"],
        &["setfacl", "-m", "u:1:r"],
    ] {
        matched(words, "/report[1]", one);
        matched(words, "/report?", two);
    }
    fails(["mv", &at("/report?"), &at("/x")], 1, two);
    fails(["ln", &at("/report?"), &at("/x")], 1, two);
    fails(["find", &at("/report?"), "-delete"], 1, "No such file");
    // Absence is no failure for -f, but what was meant may have been more.
    let ran = run(["rm", "-f", &at("/report*")]);
    assert_eq!(
        (ran.code, ran.stderr.contains(two)),
        (Some(0), true),
        "{}",
        ran.stderr
    );
    assert_eq!(listed(), before);
    // What reads takes no brackets alone: they are common in names.
    fails(["cat", &at("/report[1]")], 1, "No such file");
    // What makes missing files makes them.
    for (words, made) in [
        (&["touch"][..], "/report?"),
        (&["truncate", "-s1"], "/report[2]"),
    ] {
        ok([words, &[&at(made)]].concat());
        ok(["rm", &at(made)]);
    }
    assert_eq!(listed(), before);
    ok(["rm", "--glob", &at("/report[1]")]);
    assert!(!listed().contains("report1") && listed().contains("report2"));
    both.image.assert_clean();
}

#[test]
fn copies_with_an_owner_and_a_mode_of_ones_own() {
    let Some(both) = Both::new() else { return };
    let at = |path: &str| both.image.at(path);
    ok([
        "cp",
        "-r",
        "--chown",
        "1000:50",
        "--chmod",
        "u=rwX,go=",
        str(&both.host),
        &at("/mine"),
    ]);
    let stat = |path: &str| ok(["stat", "-c", "%u:%g %a", &at(path)]);
    assert_eq!(stat("/mine"), "1000:50 700\n");
    assert_eq!(stat("/mine/one.txt"), "1000:50 600\n");
    assert_eq!(stat("/mine/a/three.c"), "1000:50 700\n");
    assert_eq!(ok(["stat", "-c", "%u:%g", &at("/mine/link")]), "1000:50\n");
    ok([
        "cp",
        "-a",
        "--chown=:7",
        str(&both.host.join("two.txt")),
        &at("/two"),
    ]);
    let uid = fs::metadata(both.host.join("two.txt")).unwrap().uid();
    assert_eq!(stat("/two"), format!("{uid}:7 4711\n"));
    let ran = run_with_input(
        ["cp", "--chown", "3:4", "--chmod=0400", "-", &at("/stream")],
        b"x",
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(stat("/stream"), "3:4 400\n");
    // An overwritten file loses the set-id bits of its old owner.
    ok(["chmod", "4755", &at("/mine/one.txt")]);
    ok([
        "cp",
        "--chown",
        "9",
        str(&both.host.join("one.txt")),
        &at("/mine/one.txt"),
    ]);
    assert_eq!(stat("/mine/one.txt"), "9:50 755\n");
    // The requested mode also applies if an ACL is preserved.
    ok(["setfacl", "-m", "u:5:rwx", &at("/t/one.txt")]);
    ok([
        "cp",
        "-a",
        "--chmod",
        "600",
        &at("/t/one.txt"),
        &at("/listed"),
    ]);
    assert_eq!(stat("/listed").split_whitespace().next_back(), Some("600"));
    fails(
        [
            "cp",
            "--chown",
            "no-such-user",
            str(&both.host.join("one.txt")),
            &at("/x"),
        ],
        2,
        "no-such-user",
    );
    both.image.assert_clean();
}

#[test]
fn copies_of_what_is_newer_and_with_less_kept() {
    let Some(both) = Both::new() else { return };
    let at = |path: &str| both.image.at(path);
    let file = both.image.sibling("file");
    fs::write(&file, b"older").unwrap();
    ok(["cp", "-p", str(&file), &at("/f")]);
    fs::write(&file, b"other").unwrap();
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    fs::File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_modified(old)
        .unwrap();
    ok(["cp", "-u", str(&file), &at("/f")]);
    assert_eq!(both.image.contents("/f"), b"older");
    ok(["touch", "-d", "@900000000", &at("/f")]);
    ok(["cp", "-u", str(&file), &at("/f")]);
    assert_eq!(both.image.contents("/f"), b"other");
    ok([
        "cp",
        "--update=none",
        str(&both.host.join("one.txt")),
        &at("/f"),
    ]);
    assert_eq!(both.image.contents("/f"), b"other");
    let stat = |path: &str| ok(["stat", "-c", "%a %Y", &at(path)]);
    let two = both.host.join("two.txt");
    ok([
        "cp",
        "-a",
        "--no-preserve=mode,timestamps",
        str(&two),
        &at("/less"),
    ]);
    assert!(stat("/less").starts_with("644 ") && !stat("/less").contains("1000000000"));
    let host = both.image.sibling("host");
    let cp = Command::new("cp")
        .args(["-a", "--no-preserve=mode"])
        .args([&two, &host])
        .status()
        .unwrap();
    assert!(cp.success());
    assert_eq!(fs::metadata(&host).unwrap().mode() & 0o7777, 0o644);
    both.image.assert_clean();
}

#[test]
fn relative_links_and_times_by_reference() {
    let Some(both) = Both::new() else { return };
    let at = |path: &str| both.image.at(path);
    ok(["ln", "-sr", &at("/t/one.txt"), &at("/t/a/b/relative")]);
    assert_eq!(ok(["readlink", &at("/t/a/b/relative")]), "../../one.txt\n");
    let theirs = both.theirs("ln -sr t/one.txt t/a/b/relative && readlink t/a/b/relative");
    assert_eq!(theirs, "../../one.txt\n");
    ok(["touch", "-r", &at("/t/one.txt"), &at("/t/two.txt")]);
    assert_eq!(ok(["stat", "-c", "%Y", &at("/t/two.txt")]), "1000000000\n");
    ok(["touch", "-r", str(&both.host.join("one.txt")), &at("/new")]);
    assert_eq!(ok(["stat", "-c", "%Y", &at("/new")]), "1000000000\n");
    ok([
        "touch",
        "-d",
        "Sat, 03 Feb 2001 04:05:06 +0100",
        &at("/new"),
    ]);
    assert_eq!(ok(["stat", "-c", "%Y", &at("/new")]), "981169506\n");
    ok(["touch", "-d", "2 days ago", &at("/new")]);
    fails(["touch", "-d", "someday", &at("/new")], 2, "invalid date");
    both.image.assert_clean();
}

/// `-a` also reports an attribute that does not fit into the target.
#[test]
fn an_archive_copy_says_what_it_drops() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext4", "-O", "ea_inode"]);
    let small = Image::new("16M", &["-t", "ext4", "-b", "1024", "-O", "^ea_inode"]);
    ok(["touch", &image.at("/f")]);
    let value = "v".repeat(3000);
    ok(["setfattr", "-n", "user.big", "-v", &value, &image.at("/f")]);
    ok(["setfattr", "-n", "user.small", "-v", "s", &image.at("/f")]);
    let ran = run(["cp", "-a", &image.at("/f"), &small.at("/f")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("cannot set attribute 'user.big'"),
        "{}",
        ran.stderr
    );
    assert!(ok(["getfattr", "-d", &small.at("/f")]).contains("user.small=\"s\""));
    small.assert_clean();
    image.assert_clean();
}
