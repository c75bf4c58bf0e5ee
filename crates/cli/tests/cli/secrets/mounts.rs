//! Mounts of images by URLs with secrets, given in every way: what everybody on the machine sees of them.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use throughline_testkit::left_out;
use throughline_testkit::objects::Fault;
use throughline_testkit::program::has;

use super::{assert_none, whole_with};
use crate::common::{Ran, good, ok, throughline};
use crate::objects::{Stored, stored};

/// No other test has it: arguments of others are seen for a moment.
pub(super) const SECRET: &str = "muffled-word";
/// See the other one.
pub(super) const BASIC: &str = "Basic c29tZWJvZHk6bXVmZmxlZC13b3Jk";

fn whole(stored: &Stored) -> String {
    whole_with(stored, SECRET, BASIC)
}

/// Neither the names nor the contents of files below a directory have it.
#[track_caller]
fn assert_none_below(dir: &Path) {
    let mut files = 0;
    let mut waiting = vec![dir.to_owned()];
    while let Some(path) = waiting.pop() {
        assert_none("a name", path.as_os_str().as_bytes());
        if path.is_dir() {
            waiting.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else {
            assert_none("a file of the cache", &fs::read(&path).unwrap());
            files += 1;
        }
    }
    assert!(files > 0, "nothing is cached");
}

/// What every user of the machine sees of processes.
#[track_caller]
fn assert_no_process_shows_it() {
    for process in fs::read_dir("/proc").unwrap().flatten() {
        // Most are no processes, and processes end.
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        assert!(!line.contains(SECRET), "{line:?}");
    }
}

/// How the secret is given.
struct Way {
    name: &'static str,
    /// The name of the program.
    program: &'static str,
    /// `URL`, `BARE` and `OVER` stand for the URL, the same without its secrets, and an overlay over it.
    arguments: &'static [&'static str],
    variable: Option<&'static str>,
}

const WAYS: [Way; 8] = [
    Way {
        name: "an argument",
        program: "throughline",
        arguments: &["mount", "URL", "DIR", "-v", "-o", "allow_other,LOG"],
        variable: None,
    },
    Way {
        name: "an option",
        program: "throughline",
        arguments: &[
            "mount",
            "--backing=URL",
            "OVER",
            "DIR",
            "-o",
            "allow_other,LOG",
        ],
        variable: None,
    },
    Way {
        name: "an option of the mount",
        program: "throughline",
        arguments: &["mount", "OVER", "DIR", "-o", "allow_other,LOG,backing=URL"],
        variable: None,
    },
    Way {
        name: "the environment",
        program: "throughline",
        arguments: &["mount", "BARE", "DIR", "-o", "allow_other,LOG"],
        variable: Some("THROUGHLINE_URLS"),
    },
    Way {
        name: "a file",
        program: "throughline",
        arguments: &["mount", "BARE", "DIR", "-o", "allow_other,LOG"],
        variable: Some("THROUGHLINE_URLS_FILE"),
    },
    Way {
        name: "the environment, for a base",
        program: "throughline",
        arguments: &[
            "mount",
            "--backing",
            "BARE",
            "OVER",
            "DIR",
            "-o",
            "allow_other,LOG",
        ],
        variable: Some("THROUGHLINE_URLS"),
    },
    Way {
        name: "fuse2fs",
        program: "fuse2fs",
        arguments: &["URL", "DIR", "-o", "ro,allow_other,LOG"],
        variable: None,
    },
    Way {
        name: "mount(8)",
        program: "mount.fuse.throughline",
        arguments: &["URL", "DIR", "-o", "ro,allow_other,LOG"],
        variable: None,
    },
];

impl Way {
    /// The command, which is in no list of arguments of the caller.
    fn command(&self, stored: &Stored, dir: &Path, log: &Path) -> Command {
        let (url, bare) = (whole(stored), stored.server.url());
        let program = stored.image.sibling(self.program);
        let _ = symlink(throughline().get_program(), &program);
        let mut command = Command::new(program);
        command
            .stdin(Stdio::null())
            .env("THROUGHLINE_CACHE", stored.cache.path())
            .env("THROUGHLINE_OBJECT_TIMEOUT", "2");
        for argument in self.arguments {
            let over = stored.image.sibling("over.qcow2");
            let log = format!("log=trace,log_file={}", log.display());
            let argument = argument.replace("URL", &url).replace("BARE", &bare);
            let argument = argument.replace("OVER", over.to_str().unwrap());
            let argument = argument.replace("LOG", &log);
            command.arg(argument.replace("DIR", dir.to_str().unwrap()));
        }
        match self.variable {
            Some(name @ "THROUGHLINE_URLS") => {
                command.env(name, format!("http://127.0.0.1/other?a=b\n{url}"));
            }
            Some(name) => {
                let file = stored.image.sibling("urls");
                fs::write(&file, format!("# of a test\n{url}\n")).unwrap();
                command.env(name, file);
            }
            None => {}
        }
        command
    }
}

/// The output of `status` for another user.
fn asked_by_another(dir: &Path) -> Ran {
    // This user may have no access to the directory of the binary.
    let binary = fs::File::open(throughline().get_program()).unwrap();
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=12345", "--regid=12345", "--clear-groups"])
        .args(["sh", "-c", "exec /proc/self/fd/0 \"$@\"", "sh"])
        .args(["status", "--json"])
        .arg(dir)
        .stdin(binary);
    good(&mut command)
}

/// `ps`, `/proc/PID/cmdline`, `status`, the log, texts of errors, the list of mounts and the cache.
#[test]
fn a_mount_shows_no_secret() {
    if crate::mount::skipped() || !has(&["setpriv"]) {
        return;
    }
    let stored = stored();
    let over = stored.image.sibling("over.qcow2");
    let at = format!("{}:/etc/new", whole(&stored));
    let new = stored.image.sibling("new");
    fs::write(&new, "new\n").unwrap();
    let over = over.to_str().unwrap();
    stored.good(&["cp", "--overlay", over, new.to_str().unwrap(), &at]);
    assert_none("the overlay", &fs::read(over).unwrap());
    fs::set_permissions(stored.image.sibling(""), PermissionsExt::from_mode(0o755)).unwrap();
    for (way, number) in WAYS.iter().zip(0..) {
        let name = way.name;
        stored.forget();
        let dir = stored.image.sibling(&format!("mnt{number}"));
        fs::create_dir(&dir).unwrap();
        let log = stored.image.sibling(&format!("log{number}"));
        let ran = good(&mut way.command(&stored, &dir, &log));
        let seen = std::panic::catch_unwind(AssertUnwindSafe(|| {
            assert_none(name, &[ran.stdout, ran.stderr.into_bytes()].concat());
            assert_eq!(fs::read(dir.join("etc/motd")).unwrap(), b"hello\n");
            assert_no_process_shows_it();
            let shown = asked_by_another(&dir);
            assert!(shown.text().contains("/folder/disk.img"), "{name}");
            assert_none(name, &shown.stdout);
            assert_none(name, ok(["status", dir.to_str().unwrap()]).as_bytes());
            assert_none(name, ok(["mount"]).as_bytes());
            assert_none(name, &fs::read("/proc/mounts").unwrap());
            // The second takes ten seconds, and its texts do not depend on the way.
            let faults = [Fault::Status(403), Fault::Closed];
            let is_all = number == 0 || throughline_testkit::tier::soak();
            for fault in faults.iter().take(if is_all { 2 } else { 1 }) {
                stored.server.fail_always(Some(*fault));
                fs::read(dir.join("large")).unwrap_err();
            }
        }));
        stored.server.fail_always(None);
        let ran = good(throughline().arg("umount").arg(&dir));
        seen.unwrap_or_else(|error| std::panic::resume_unwind(error));
        assert_none(name, &[ran.stdout, ran.stderr.into_bytes()].concat());
        let log = fs::read(&log).unwrap();
        assert!(log.len() > 1000, "{name}: the log has {} bytes", log.len());
        assert_none(name, &log);
        assert_none_below(stored.cache.path());
    }
}

/// A core is the memory of a process, and holds what it works with.
#[test]
fn a_mount_with_secrets_leaves_no_core() {
    if crate::mount::skipped() {
        return;
    }
    let stored = stored();
    let url = super::whole(&stored);
    let bare = stored.server.url();
    let local = stored.image.str();
    for (image, variable, leaves_core) in [
        (local, None, true),
        (url.as_str(), None, false),
        (bare.as_str(), Some(url.as_str()), false),
    ] {
        let dir = stored.image.sibling("mnt");
        let _ = fs::create_dir(&dir);
        let mut command = Command::new("sh");
        command
            .args(["-c", "ulimit -c unlimited; exec \"$0\" \"$@\""])
            .arg(throughline().get_program())
            // In the sandbox, a server may make no files, and so no core where it is.
            .args(["--no-sandbox", "mount", "-f", "-o", "ro", image])
            .arg(&dir)
            .current_dir(stored.image.sibling(""))
            .env("THROUGHLINE_CACHE", stored.cache.path())
            .stdin(Stdio::null());
        if let Some(variable) = variable {
            command.env("THROUGHLINE_URLS", variable);
        }
        let mut server = command.spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(120);
        while !dir.join("etc").exists() {
            assert!(Instant::now() < until, "not mounted");
            std::thread::sleep(Duration::from_millis(5));
        }
        let process = rustix::process::Pid::from_child(&server);
        rustix::process::kill_process(process, rustix::process::Signal::ABORT).unwrap();
        let status = server.wait().unwrap();
        let _ = rustix::mount::unmount(&dir, rustix::mount::UnmountFlags::DETACH);
        assert!(status.signal().is_some(), "{status:?}");
        if leaves_core && !status.core_dumped() {
            left_out!("this system keeps no cores");
            return;
        }
        assert_eq!(status.core_dumped(), leaves_core, "{variable:?}");
    }
}
