//! `explain --kernel`, and both kinds of account held against `bpftrace`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{MIB, REPORT_1, accounts, count, sizes, str};
use crate::common::{Image, fails, is_root, noise, run, throughline, tool, tools_are_missing};

/// Whether the kernel can be watched here; says so where it cannot.
fn kernel_is_out_of_reach() -> bool {
    if !is_root() {
        eprintln!("skipped: watching the kernel needs root");
        return true;
    }
    let ran = run(["explain", "--kernel", "true"]);
    if ran.code == Some(125) {
        eprintln!("skipped: {}", ran.stderr);
    }
    ran.code == Some(125)
}

/// The instances that processes of ours have, or have left; tracefs is mounted where nobody else sees it.
fn instances() -> Vec<String> {
    let script = "mount -t tracefs nodev /sys/kernel/tracing && ls /sys/kernel/tracing/instances";
    let output = tool("unshare")
        .args(["-m", "sh", "-c", script])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    names
        .lines()
        .map(str::to_owned)
        .filter(|name| name.starts_with("throughline-"))
        .collect()
}

fn instances_of(pid: u32) -> usize {
    let prefix = format!("throughline-{pid}-");
    instances()
        .iter()
        .filter(|name| name.starts_with(&prefix))
        .count()
}

#[test]
fn any_commands_exit_code_is_passed_on() {
    if kernel_is_out_of_reach() {
        return;
    }
    assert_eq!(
        run(["explain", "--kernel", "--", "sh", "-c", "exit 7"]).code,
        Some(7)
    );
    assert_eq!(
        run(["explain", "--kernel", "--", "sh", "-c", "kill -9 $$"]).code,
        Some(137)
    );
    fails(
        ["explain", "--kernel", "no-such-command-here"],
        127,
        "No such file",
    );
    fails(
        ["explain", "--kernel", "/etc/passwd"],
        126,
        "Permission denied",
    );
    fails(
        ["explain", "--kernel", "--device", "/proc", "true"],
        125,
        "block device",
    );
}

#[test]
fn another_user_is_told_to_be_root() {
    if !is_root() {
        fails(["explain", "--kernel", "true"], 125, "sudo");
        return;
    }
    match throughline()
        .args(["explain", "--kernel", "true"])
        .uid(65534)
        .gid(65534)
        .output()
    {
        Ok(output) => {
            assert_eq!(output.status.code(), Some(125), "{output:?}");
            assert!(
                String::from_utf8_lossy(&output.stderr).contains("sudo"),
                "{output:?}"
            );
        }
        Err(error) => {
            eprintln!("skipped: another user cannot run the binary where it lies: {error}")
        }
    }
}

/// A run of `explain --kernel` whose command says a line and then waits to be ended.
fn waiting() -> std::process::Child {
    let mut child = throughline()
        .args([
            "explain",
            "--kernel",
            "--",
            "sh",
            "-c",
            "echo here; exec sleep 600",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "here\n");
    child
}

#[test]
fn a_signal_is_handed_on_and_nothing_stays() {
    if kernel_is_out_of_reach() {
        return;
    }
    let mut child = waiting();
    assert_eq!(instances_of(child.id()), 2);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_eq!(instances_of(child.id()), 0);
}

#[test]
fn what_a_killed_one_leaves_the_next_one_removes() {
    if kernel_is_out_of_reach() {
        return;
    }
    let mut child = waiting();
    let name = format!("/proc/{0}/task/{0}/children", child.id());
    let sleeper = fs::read_to_string(name).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    // Another test that explains may have removed them already.
    assert_eq!(run(["explain", "--kernel", "true"]).code, Some(0));
    assert_eq!(instances_of(child.id()), 0);
    for pid in sleeper
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
    {
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

/// An ext3 image on a loop device, mounted if asked for; all of it goes with the value.
struct Loop {
    image: Image,
    device: String,
    mounted: Option<PathBuf>,
}

impl Loop {
    /// `None` where there are no loop devices.
    fn new(mount: bool) -> Option<Loop> {
        if tools_are_missing() {
            return None;
        }
        let image = Image::new("128M", &["-t", "ext3", "-b", "4096"]);
        let output = tool("losetup")
            .args(["--find", "--show"])
            .arg(image.path())
            .output()
            .unwrap();
        if !output.status.success() {
            eprintln!(
                "skipped: no loop device: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            return None;
        }
        let device = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let mut it = Loop {
            image,
            device,
            mounted: None,
        };
        if mount {
            let point = it.image.beside("mnt");
            fs::create_dir(&point).unwrap();
            let mounted = tool("mount")
                .args(["-t", "ext3", &it.device])
                .arg(&point)
                .status()
                .unwrap();
            if !mounted.success() {
                eprintln!("skipped: ext3 cannot be mounted here");
                return None;
            }
            it.mounted = Some(point);
        }
        Some(it)
    }

    fn file(&self) -> PathBuf {
        self.mounted.as_ref().unwrap().join("f")
    }

    /// As the tracepoints have it.
    fn number(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let number = fs::metadata(&self.device).unwrap().rdev();
        u64::from(rustix::fs::major(number)) << 20 | u64::from(rustix::fs::minor(number))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Some(point) = &self.mounted {
            let _ = tool("umount").arg(point).status();
        }
        let _ = tool("losetup").args(["--detach", &self.device]).status();
    }
}

/// Report 1's: 4 MiB of direct I/O behind the first 48 KiB of a file, which the indirect blocks map.
fn report_1(file: &Path) -> Vec<String> {
    let head = Command::new("dd")
        .args([
            "if=/dev/zero",
            "bs=48K",
            "count=1",
            "conv=fsync",
            "status=none",
        ])
        .arg(format!("of={}", file.display()))
        .status()
        .unwrap();
    assert!(head.success());
    let words = [
        "dd",
        "if=/dev/zero",
        "bs=4096K",
        "count=1",
        "oflag=direct,seek_bytes",
        "seek=49152",
        "conv=notrunc",
        "status=none",
    ];
    let mut words: Vec<String> = words.map(str::to_owned).into();
    words.push(format!("of={}", file.display()));
    words
}

#[test]
fn the_kernels_ext3_is_explained() {
    if kernel_is_out_of_reach() {
        return;
    }
    let Some(ext3) = Loop::new(true) else { return };
    let words = report_1(&ext3.file());
    // Whatever else this machine does meanwhile, its events take none of the room.
    let file = ext3.file();
    let mut arguments = vec!["--kernel", "--buffer", "16M", "--device", str(&file), "--"];
    arguments.extend(words.iter().map(String::as_str));
    let accounts = accounts(&arguments);
    let name = ext3.device.trim_start_matches("/dev/");
    let named = |account: &&Value| account["series"] == format!("{name} (kernel)");
    let account = accounts
        .iter()
        .find(named)
        .unwrap_or_else(|| panic!("{name}: {accounts:?}"));
    assert_eq!(account["lost_events"], 0);
    assert_eq!(account["direct"]["bytes"], 4 * MIB);
    assert!(count(account, "asked", "write").1 >= 4 * MIB);
    assert!(
        count(account, "bios", "write data").1 >= 4 * MIB,
        "{account}"
    );
    assert!(
        count(account, "requests", "write").1 >= 4 * MIB,
        "{account}"
    );
    assert!(
        account["latency"]["write"]["count"].as_u64() > Some(0),
        "{account}"
    );
    assert!(
        account["first_submit"]["count"].as_u64() > Some(0),
        "{account}"
    );
    // Not a bio for each page, as the report had it.
    let by_command = account["submitted_by"]["the command"].as_u64().unwrap();
    assert!(by_command < 1024, "{account}");
    assert_eq!(ext3.file().metadata().unwrap().len(), 4 * MIB + (48 << 10));
}

/// Runs a command of words without blanks under `bpftrace`: its output, and of each bio of the device that was given by a
/// thread of this name, or by any, sector count and letters. `None` where `bpftrace` is not there or cannot work.
fn bpftraced(
    words: &[String],
    device: u64,
    thread: Option<&str>,
) -> Option<(String, Vec<(u64, u64)>)> {
    let filter = match thread {
        Some(name) => format!("args->dev == {device} && comm == \"{name}\""),
        None => format!("args->dev == {device}"),
    };
    let program = format!(
        "tracepoint:block:block_bio_queue /{filter} && args->nr_sector > 0 && args->rwbs != \"R\"/ {{ @bios[args->nr_sector] = count(); }}"
    );
    let words = words.join(" ");
    let mut bpftrace = tool("unshare");
    bpftrace
        .args([
            "-m",
            "sh",
            "-c",
            "mount -t tracefs nodev /sys/kernel/tracing && exec bpftrace -e \"$1\" -c \"$2\"",
            "sh",
        ])
        .args([&program, &words])
        .stdin(Stdio::null());
    let output = bpftrace.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() || !text.contains("Attaching") {
        eprintln!(
            "skipped: no bpftrace that works: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return None;
    }
    let bios = text.lines().filter_map(|line| {
        let (sectors, count) = line.strip_prefix("@bios[")?.split_once("]: ")?;
        Some((sectors.parse::<u64>().ok()? * 512, count.parse().ok()?))
    });
    let mut bios: Vec<(u64, u64)> = bios.collect();
    bios.sort_unstable();
    Some((text, bios))
}

/// Only with `THROUGHLINE_SOAK`, because it depends on another program than the kernel.
fn no_judge() -> bool {
    if std::env::var_os("THROUGHLINE_SOAK").is_none() {
        eprintln!("skipped: holding accounts against bpftrace needs THROUGHLINE_SOAK=1");
        return true;
    }
    kernel_is_out_of_reach()
}

fn explained_to(file: &Path, arguments: &[&str]) -> Vec<String> {
    let mut words: Vec<String> = vec![env!("CARGO_BIN_EXE_throughline").into()];
    words.extend(["explain", "--json", "--to"].map(str::to_owned));
    words.push(str(file).into());
    words.extend(arguments.iter().map(|word| (*word).to_owned()));
    words
}

fn account_in(file: &Path) -> Value {
    let text = fs::read_to_string(file).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    all["accounts"][0].clone()
}

/// Journal and metadata of the mounted file system may be written at any moment, also outside of what one of the two
/// watches; bios of this size are the command's alone.
fn large(sizes: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    sizes
        .into_iter()
        .filter(|(bytes, _)| *bytes >= 32 << 10)
        .collect()
}

#[test]
fn bpftrace_counts_the_same_bios_of_the_kernels_ext3() {
    if no_judge() {
        return;
    }
    let Some(ext3) = Loop::new(true) else { return };
    let out = ext3.image.beside("account.json");
    let mut words = explained_to(&out, &["--kernel", "--"]);
    words.extend(report_1(&ext3.file()));
    let Some((said, bios)) = bpftraced(&words, ext3.number(), Some("dd")) else {
        return;
    };
    let account = account_in(&out);
    let all: u64 = bios.iter().map(|(_, count)| count).sum();
    assert_eq!(
        account["submitted_by"]["the command"], all,
        "{account}\n{said}"
    );
    assert_eq!(
        large(sizes(&account, "write")),
        large(bios),
        "{account}\n{said}"
    );
}

#[test]
fn bpftrace_counts_the_same_bios_of_our_engine() {
    if no_judge() {
        return;
    }
    let Some(ext3) = Loop::new(false) else { return };
    let out = ext3.image.beside("account.json");
    let source = ext3.image.beside("a.bin");
    fs::write(&source, noise((4 << 20) + (48 << 10), 5)).unwrap();
    let target = format!("{}:/b", ext3.device);
    // Bios of a size that the kernel takes whole from memory in small pages.
    let words = explained_to(
        &out,
        &[
            "--direct",
            "--bio-target",
            "512k",
            "cp",
            str(&source),
            &target,
        ],
    );
    let Some((said, bios)) = bpftraced(&words, ext3.number(), None) else {
        return;
    };
    let account = account_in(&out);
    assert_eq!(sizes(&account, "write"), bios, "{account}\n{said}");
}

#[test]
fn bpftrace_counts_the_same_bios_of_report_1_on_our_engine() {
    if no_judge() {
        return;
    }
    let Some(ext3) = Loop::new(false) else { return };
    let out = ext3.image.beside("account.json");
    let workload = ext3.image.beside("report-1.toml");
    fs::write(&workload, REPORT_1).unwrap();
    let (kept, target) = (
        ext3.image.beside("run.jsonl"),
        format!("image:{}", ext3.device),
    );
    let run = [
        "lab",
        "run",
        str(&workload),
        "--target",
        &target,
        "--out",
        str(&kept),
    ];
    let Some((said, bios)) = bpftraced(&explained_to(&out, &run), ext3.number(), None) else {
        return;
    };
    let account = account_in(&out);
    assert_eq!(sizes(&account, "write"), bios, "{account}\n{said}");
}
