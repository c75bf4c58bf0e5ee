//! Programs in C: compiled against the library as it is installed, run, and run again under valgrind.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use throughline_testkit::{e2fs, missing};

/// The library installed in a directory of its own.
struct Installed {
    dir: tempfile::TempDir,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output();
    found.is_ok_and(|output| output.status.success())
}

fn ok(command: &mut Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn text(output: Output) -> String {
    String::from_utf8(output.stdout).expect("the output is text")
}

impl Installed {
    /// `None` if a program is missing; the reason was printed.
    fn new() -> Option<Installed> {
        for program in ["cc", "pkg-config", "valgrind"] {
            if !has(program) {
                missing!("{program} is required");
                return None;
            }
        }
        if !e2fs::is_there() {
            missing!("e2fsprogs is required");
            return None;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let script = root().join("../../scripts/c-library");
        ok(Command::new(script).arg(dir.path()).arg(built()));
        Some(Installed { dir })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Compiles a program, with all warnings as errors.
    fn compiled(&self, source: &str) -> PathBuf {
        let pc = self.path("lib/pkgconfig");
        let mut asked = Command::new("pkg-config");
        asked
            .args(["--cflags", "--libs", "throughline"])
            .env("PKG_CONFIG_PATH", pc);
        let flags = text(ok(&mut asked));
        let program = self.path("program");
        let standard = [
            "-std=c11",
            "-D_GNU_SOURCE",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-g",
        ];
        let mut cc = Command::new("cc");
        cc.args(standard)
            .arg(root().join(source))
            .arg("-o")
            .arg(&program);
        ok(cc.args(flags.split_whitespace()).arg("-pthread"));
        program
    }

    fn run(&self, command: &mut Command) -> String {
        text(ok(command
            .env("LD_LIBRARY_PATH", self.path("lib"))
            .arg("disk.img")
            .current_dir(self.dir.path())))
    }

    /// Runs a program on a new image, and on another one under valgrind: errors of memory, and memory that is
    /// lost, fail. `prepare` makes the image. Returns the output, which has the same lines.
    fn run_twice(&self, program: &Path, prepare: impl Fn(&Path)) -> String {
        let image = self.path("disk.img");
        prepare(&image);
        let plain = self.run(&mut Command::new(program));
        e2fs::assert_clean(&image);
        std::fs::remove_file(&image).expect("the image is removed");
        prepare(&image);
        let mut valgrind = Command::new("valgrind");
        valgrind.args([
            "--error-exitcode=9",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite",
        ]);
        let checked = self.run(valgrind.arg("-q").arg(program));
        e2fs::assert_clean(&image);
        assert_eq!(
            sorted(&plain),
            sorted(&checked),
            "under valgrind, the output is another"
        );
        plain
    }
}

/// The shared library, which cargo has put beside the tests.
fn built() -> PathBuf {
    let test = std::env::current_exe().expect("the path of the test");
    test.with_file_name("libthroughline_capi.so")
}

#[test]
fn the_example_edits_an_image() {
    let Some(installed) = Installed::new() else {
        return;
    };
    let program = installed.compiled("examples/edit.c");
    let output = installed.run_twice(&program, |_| ());
    let expected = "100644    13 motd\n100644     6 hostname\n120777     4 issue\nhello from C\n\
                    ENOTEMPTY: directory not empty\n";
    assert_eq!(sorted(&output), sorted(&expected.replace("%", "")));
    let image = installed.path("disk.img");
    assert_eq!(e2fs::debugfs(&image, "cat /etc/motd"), "hello from C\n");
    assert!(e2fs::debugfs(&image, "ea_list /etc/motd").contains("user.origin (1) = \"C\""));
    assert!(e2fs::dumpe2fs(&image, &["-h"]).contains("from C"));
}

/// The order of names in a directory is that of their hashes, whose seed is random.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn the_example_uses_a_volume_from_several_threads() {
    let Some(installed) = Installed::new() else {
        return;
    };
    let program = installed.compiled("examples/threads.c");
    let output = installed.run_twice(&program, |image| {
        assert!(e2fs::mke2fs(image, "32M", &["-t", "ext4"]));
    });
    assert_eq!(output, "100 files by 4 threads\n");
}

#[test]
fn misuse_is_an_error_and_edges_are_as_the_header_says() {
    let Some(installed) = Installed::new() else {
        return;
    };
    let program = installed.compiled("tests/misuse.c");
    let output = installed.run_twice(&program, |_| ());
    let expected = include_str!("misuse.txt");
    assert!(
        output == expected,
        "tests/misuse.txt differs from:\n{output}"
    );
}

#[test]
fn programs_in_cxx_can_include_the_header() {
    let Some(installed) = Installed::new() else {
        return;
    };
    if !has("c++") {
        missing!("c++ is required");
        return;
    }
    let source = installed.path("program.cc");
    let text = "#include <throughline.h>\nint main() { return tl_version()[0] == 0; }\n";
    std::fs::write(&source, text).expect("the program is written");
    let program = installed.path("program");
    let mut cxx = Command::new("c++");
    cxx.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(installed.path("include"));
    cxx.arg(&source)
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(installed.path("lib"));
    ok(cxx.arg("-lthroughline"));
    installed.run(&mut Command::new(&program));
}

#[test]
fn a_directory_is_packed() {
    let Some(installed) = Installed::new() else {
        return;
    };
    let tree = installed.path("tree");
    std::fs::create_dir(&tree).expect("a directory");
    std::fs::write(tree.join("file"), "packed\n").expect("a file");
    let program = installed.compiled("tests/pack.c");
    let pack = |image: &Path| assert!(!image.exists());
    installed.run_twice(&program, pack);
    let image = installed.path("disk.img");
    assert_eq!(e2fs::debugfs(&image, "cat /file"), "packed\n");
    assert!(
        e2fs::debugfs(&image, "stat /file").contains("0x00000007"),
        "the time is not that of the epoch"
    );
}
