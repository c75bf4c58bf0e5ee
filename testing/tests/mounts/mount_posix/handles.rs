//! File handles: `name_to_handle_at`, and `open_by_handle_at` much later, when the kernel has forgotten the
//! inode, the volume was remounted, the file is gone, or its inode number was reused. An NFS server does the
//! same.
//!
//! No crate without `unsafe` makes these calls, so Perl is used.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use throughline_testing::program::{self, has};
use throughline_testing::{DiskImage, Mount, Mounted};

/// A call takes milliseconds, longer on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// `take PATH` prints a handle as its type and its bytes in hex. `open ROOT TYPE HEX` prints what it leads
/// to: a file's text, a directory's names, or the error's name.
const PERL: &str = r#"
use strict; use Errno;
my ($name_to, $open_by) = (303, 304);
sub failed { for my $name (keys %!) { if ($!{$name}) { print $name; exit } } print "errno ", $!+0; exit }
my ($what, @rest) = @ARGV;
if ($what eq 'take') {
    my $handle = pack('Li', 128, 0) . "\0" x 128;
    my $mount = pack('i', 0);
    my $path = "$rest[0]\0";
    syscall($name_to, -100, $path, $handle, $mount, 0) == 0 or failed();
    my ($len, $type) = unpack('Li', $handle);
    print "$type ", unpack('H*', substr($handle, 8, $len));
    exit;
}
my ($root, $type, $hex) = @rest;
my $bytes = pack('H*', $hex);
my $handle = pack('Li', length($bytes), $type) . $bytes;
opendir(my $dir, $root) or failed();
my $fd = syscall($open_by, fileno($dir), $handle, 0);
$fd >= 0 or failed();
if (opendir(my $names, "/proc/self/fd/$fd")) {
    print join(' ', sort readdir($names));
} else {
    open(my $file, '<&=', $fd) or failed();
    local $/; print scalar(<$file>);
}
"#;

fn perl(arguments: &[&str]) -> String {
    let mut command = Command::new("perl");
    let ran = program::run(command.arg("-e").arg(PERL).args(arguments), LIMIT).good("perl");
    ran.stdout
}

fn take(path: &Path) -> String {
    perl(&["take", path.to_str().unwrap()])
}

fn open(root: &Path, handle: &str) -> String {
    let (kind, hex) = handle.split_once(' ').expect("a type and bytes");
    perl(&["open", root.to_str().unwrap(), kind, hex])
}

/// One of the two sides, remounted repeatedly.
enum Side {
    Kernel(Mount),
    Ours(Mounted),
}

impl Side {
    fn mount(image: &DiskImage, ours: bool) -> Side {
        match ours {
            true => Side::Ours(Mounted::new(image.path(), "allow_other")),
            false => {
                Side::Kernel(Mount::with_options(image.path(), "loop,rw").expect("mounted before"))
            }
        }
    }

    fn root(&self) -> &Path {
        match self {
            Side::Kernel(kernel) => kernel.root(),
            Side::Ours(ours) => ours.root(),
        }
    }

    fn unmount(self) {
        match self {
            Side::Kernel(kernel) => kernel.close(),
            Side::Ours(ours) => ours.unmount(),
        }
    }
}

/// The inode number in a handle of either side, and the handle with another number.
fn with_number(handle: &str, ours: bool, ino: u32) -> String {
    let (kind, hex) = handle.split_once(' ').unwrap();
    let number: String = ino.to_le_bytes().map(|byte| format!("{byte:02x}")).concat();
    // Ours: the upper half, the lower half, the generation.
    let at = if ours { 8 } else { 0 };
    format!("{kind} {}{number}{}", &hex[..at], &hex[at + 8..])
}

/// The result of each handle at each stage.
fn results_of_handles(image: &DiskImage, ours: bool) -> BTreeMap<String, String> {
    let mut results = BTreeMap::new();
    let mut side = Side::mount(image, ours);
    let root = side.root().to_owned();
    fs::create_dir_all(root.join("d/e")).unwrap();
    for name in ["f", "d/e/g", "gone", "open"] {
        fs::write(root.join(name), name).unwrap();
    }
    let names = ["f", "d", "d/e", "d/e/g", "gone", "open", "."];
    let handles = names.map(|name| (name, take(&root.join(name))));
    let mut look = |when: &str, root: &Path| {
        for (name, handle) in &handles {
            results.insert(format!("{when}: {name}"), open(root, handle));
        }
    };
    look("at once", &root);
    side.unmount();
    // Nothing is in the kernel's memory now, and no name is looked up.
    side = Side::mount(image, ours);
    look("mounted again", side.root());
    let root = side.root().to_owned();
    fs::rename(root.join("d/e/g"), root.join("moved")).unwrap();
    fs::remove_file(root.join("gone")).unwrap();
    let held = fs::File::open(root.join("open")).unwrap();
    fs::remove_file(root.join("open")).unwrap();
    look("gone", &root);
    drop(held);
    look("let go", &root);
    for at in 0..20 {
        fs::write(root.join(format!("again{at}")), "another").unwrap();
    }
    look("numbers reused", &root);
    side.unmount();
    side = Side::mount(image, ours);
    look("numbers reused, mounted again", side.root());
    // Numbers that no valid handle contains: reserved, never used, past the end.
    let (_, any) = &handles[0];
    for ino in [0, 1, 3, 7, 8, 9, 4000, 4001, u32::MAX] {
        let handle = with_number(any, ours, ino);
        results.insert(format!("number {ino}"), open(side.root(), &handle));
    }
    side.unmount();
    image.check("handles of all kinds were looked up");
    results
}

#[test]
fn handles_outlive_names_caches_and_mounts() {
    if !throughline_testkit::tier::as_root() || !has(&["perl"]) || !Mounted::possible() {
        throughline_testkit::missing!("this needs root and perl");
        return;
    }
    if cfg!(not(target_arch = "x86_64")) {
        throughline_testkit::left_out!("the system call numbers of this architecture differ");
        return;
    }
    let Some(image) = DiskImage::make("-t ext4 -b 4096 -N 4000", "64M") else {
        return;
    };
    let other = image.copy();
    if let Err(why) = Mount::with_options(image.path(), "loop,rw").map(Mount::close) {
        throughline_testkit::missing!("the kernel does not mount: {why}");
        return;
    }
    let (kernel, ours) = (
        results_of_handles(&image, false),
        results_of_handles(&other, true),
    );
    assert_eq!(ours, kernel, "ours, and the kernel's");
    assert_eq!(ours["mounted again: d/e/g"], "d/e/g");
    assert_eq!(ours["numbers reused, mounted again: gone"], "ESTALE");
}

/// `blkid`, `e2label` and udev read the device.
#[test]
fn a_label_is_on_the_device_at_once() {
    if !throughline_testkit::tier::as_root() || !has(&["xfs_io"]) || !Mounted::possible() {
        throughline_testkit::missing!("this needs root and xfs_io");
        return;
    }
    for kind in ["-t ext4", "-t ext2"] {
        let Some(image) = DiskImage::make(kind, "16M") else {
            return;
        };
        let other = image.copy();
        if let Err(why) = Mount::with_options(image.path(), "loop,rw").map(Mount::close) {
            throughline_testkit::missing!("the kernel does not mount: {why}");
            return;
        }
        let shown = [(&image, false), (&other, true)].map(|(image, ours)| {
            let side = Side::mount(image, ours);
            let mut seen = Vec::new();
            for label in ["first", "second", ""] {
                let set = match label {
                    "" => "label -c".to_owned(),
                    label => format!("label -s {label}"),
                };
                let mut command = Command::new("xfs_io");
                program::run(command.args(["-r", "-c", &set]).arg(side.root()), LIMIT).good(&set);
                let mut command = Command::new("e2label");
                let ran = program::run(command.arg(image.path()), LIMIT).good("e2label");
                seen.push(ran.stdout);
            }
            side.unmount();
            image.check("labels");
            seen
        });
        assert_eq!(shown[1], shown[0], "{kind}: ours, and the kernel's");
        assert_eq!(shown[1], ["first\n", "second\n", "\n"], "{kind}");
    }
}
