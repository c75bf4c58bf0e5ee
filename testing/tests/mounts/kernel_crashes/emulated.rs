//! The same with a kernel that has quota and casefold, in an emulator: Debian's, which
//! `scripts/debian-kernel` prepares. Volumes that crash under it are recovered as by `e2fsck`, quota files
//! included; and it mounts volumes that we did not close, finds their names in any case, and leaves what
//! `e2fsck` finds sound.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fastrand::Rng;
use throughline_testing::Mounted;
use throughline_testkit::{e2fs, program};

use super::{Recipe, Work, check, recipe};

/// The folder with the kernel and its initial files.
const KERNEL: &str = "THROUGHLINE_DEBIAN_KERNEL";

/// The emulator takes some seconds to start it.
const LIMIT: Duration = Duration::from_secs(300);

/// All of them with a directory that ignores case; `e2fsck -fn` compares the quota files with the volume.
const RECIPES: &[Recipe] = &[
    recipe(
        "quota and casefold, 1k",
        &["-t", "ext4", "-b", "1024", "-O", "quota,project,casefold"],
        false,
    ),
    recipe(
        "quota and casefold, 4k",
        &["-t", "ext4", "-b", "4096", "-O", "quota,casefold"],
        false,
    ),
];

/// The directory that ignores case.
const FOLDED: &str = "Folded";

/// Whether there is an emulator with a kernel; prints what is missing.
fn kernel() -> Option<PathBuf> {
    if !throughline_testkit::tier::soak() {
        throughline_testkit::left_out!("kernels in an emulator");
        return None;
    }
    let Some(folder) = std::env::var_os(KERNEL) else {
        throughline_testkit::missing!("{KERNEL}, the folder that scripts/debian-kernel made");
        return None;
    };
    (program::has(&["qemu-system-x86_64"]) && e2fs::is_there()).then(|| folder.into())
}

fn make(image: &Path, recipe: &Recipe) {
    assert!(e2fs::mke2fs(image, "48M", recipe.args), "mke2fs");
    e2fs::debugfs_write(image, &format!("mkdir {FOLDED}"));
    e2fs::set_casefold(image, FOLDED);
    // debugfs does not count the directory in the quota files.
    e2fs::repair(image);
}

/// Runs a script of busybox's shell under the kernel, with the image as /dev/vda; returns what it printed.
fn emulate(kernel: &Path, image: &Path, script: &str) -> String {
    let disk = image.with_extension("script");
    // A whole number of sectors.
    let padding = "\n".repeat(script.len().next_multiple_of(512) - script.len());
    std::fs::write(&disk, format!("{script}{padding}")).expect("the script");
    let drive = |file: &Path| format!("file={},format=raw,if=virtio", file.display());
    let mut emulator = program::command("qemu-system-x86_64");
    emulator
        .args(["-accel", "tcg", "-m", "256", "-no-reboot", "-nic", "none"])
        .args([
            "-display", "none", "-vga", "none", "-monitor", "none", "-serial", "stdio",
        ])
        .args(["-append", "console=ttyS0 quiet panic=-1"])
        .arg("-kernel")
        .arg(kernel.join("vmlinuz"))
        .arg("-initrd")
        .arg(kernel.join("initrd.gz"))
        .args(["-drive", &drive(image), "-drive", &drive(&disk)]);
    program::run(&mut emulator, LIMIT)
        .good("the emulator")
        .stdout
}

/// Changes of names, contents and owners, some of them durable; then the kernel stops.
fn load(seed: u64) -> String {
    let mut random = Rng::with_seed(seed);
    let mut script = String::from(
        "mount -t ext4 /dev/vda /volume && cd /volume && echo mounted\nmkdir -p d1 d2\n",
    );
    for step in 0..400 {
        let place = [".", "d1", "d2", FOLDED][random.usize(..4)];
        // In a directory that ignores case, both are one name.
        let spelled = ["name", "NAME"][random.usize(..2)];
        let path = format!("{place}/{spelled}{}", random.u32(..12));
        let other = format!("d{}/other{}", random.u32(1..3), random.u32(..12));
        let owner = random.u32(1000..1004);
        let _ = match random.u32(..10) {
            0 | 1 => writeln!(script, "echo {step} > {path}"),
            2 | 3 => writeln!(
                script,
                "head -c {} /dev/zero >> {path}",
                random.u32(..200_000)
            ),
            4 | 5 => writeln!(script, "chown {owner}:{owner} {path}"),
            6 => writeln!(script, "rm -f {path}"),
            7 => writeln!(script, "mv {path} {other}"),
            8 => writeln!(script, "ln {path} {other}; truncate -s 3000 {other}"),
            _ => writeln!(script, "fsync {path}"),
        };
        if random.u32(..100) == 0 {
            script.push_str("sync\n");
        }
    }
    script.push_str("echo crashes; echo b > /proc/sysrq-trigger\n");
    script
}

#[test]
fn volumes_crashed_under_an_emulated_kernel_recover_as_by_e2fsck() {
    let Some(kernel) = kernel() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let first = throughline_testkit::seed::of_run(0);
    let mut images = 0;
    let mut transactions = 0;
    for seed in first..first + 5 {
        for recipe in RECIPES {
            let image = dir.path().join("image");
            make(&image, recipe);
            let printed = emulate(&kernel, &image, &load(seed));
            assert!(
                printed.contains("mounted") && printed.contains("crashes"),
                "THROUGHLINE_SEED={seed}, {}: {printed}",
                recipe.name
            );
            let (recovery, judged) = check(recipe, &image, seed);
            assert!(judged, "e2fsck recovers it");
            images += 1;
            transactions += recovery.replayed.unwrap_or_default().transactions;
        }
    }
    throughline_testkit::ledger::judged(images, "images that crashed under an emulated kernel");
    assert!(transactions > 0, "nothing to recover");
}

/// Every name with its kind, owner, size and, for files, content, as a script prints it.
const LIST: &str = "cd /volume; find . ! -name lost+found | sort | while read -r name; do \
    echo \"= $name $(stat -c '%A %u %g %h' \"$name\") $([ -f \"$name\" ] && md5sum < \"$name\")\"; done";

#[test]
fn an_emulated_kernel_recovers_what_we_did_not_close() {
    let Some(kernel) = kernel() else { return };
    if !Mounted::possible() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let seed = throughline_testkit::seed::of_run(0);
    for recipe in RECIPES {
        let what = format!("THROUGHLINE_SEED={seed}, {}", recipe.name);
        let image = dir.path().join("mounted");
        make(&image, recipe);
        let mounted = Mounted::new(&image, "");
        let root = mounted.root();
        Work::new(root, seed, 'a', false).run(300);
        for number in 0..40 {
            let name = root.join(FOLDED).join(format!("Straße {number}"));
            std::fs::write(&name, vec![b'x'; number * 500]).expect("a file");
            let owner = Some(1000 + number as u32 % 3);
            std::os::unix::fs::chown(&name, owner, owner).expect("another owner");
        }
        // syncfs(2) does not reach the server of a mount of a file.
        let mut sync = program::command("find");
        sync.arg(root)
            .args(["-type", "f", "-exec", "sync", "{}", "+"]);
        program::run(&mut sync, LIMIT).good("an fsync of each file");
        let copy = dir.path().join("crashed");
        std::fs::copy(&image, &copy).expect("a copy");
        let mut list = program::command("sh");
        list.args(["-c", &LIST.replace("/volume", &root.to_string_lossy())]);
        let ours = program::run(&mut list, LIMIT).good("the list").stdout;
        drop(mounted);

        let script = format!(
            "mount -t ext4 /dev/vda /volume && echo mounted\n{LIST}\ncd /volume/{FOLDED}\n\
             cat 'STRASSE 7' | wc -c; rm 'sTRASSE 8'; echo new > 'straße 9'; echo new > 'Ähre'\n\
             chown 1001 'STRASSE 10'; cd /; umount /volume && echo unmounted\n"
        );
        let printed = emulate(&kernel, &copy, &script).replace('\r', "");
        assert!(
            printed.contains("\n3500\n") && printed.contains("unmounted"),
            "{what}: {printed}"
        );
        let listed = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| line.starts_with("= "));
            lines.map(str::to_owned).collect()
        };
        assert_eq!(listed(&printed), listed(&ours), "{what}");
        assert!(listed(&ours).len() > 60, "{what}: {ours}");

        e2fs::assert_clean_after(&copy, &what);
        let mounted = Mounted::new(&copy, "");
        let folded = mounted.root().join(FOLDED);
        let read = |name: &str| std::fs::read(folded.join(name)).ok();
        assert_eq!(read("STRASSE 8"), None, "{what}");
        assert_eq!(read("STRASSE 9").as_deref(), Some(&b"new\n"[..]), "{what}");
        assert_eq!(read("ähre").as_deref(), Some(&b"new\n"[..]), "{what}");
    }
}
