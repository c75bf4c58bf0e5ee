//! Compares both kinds of explanation with `bpftrace`.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use super::ext3::{Loop, report_1};
use super::{kernel_is_out_of_reach, sizes, str, with_tracefs};
use crate::common::{noise, tool};

/// Runs a command of words without blanks under `bpftrace`. Returns its output and the sizes and counts of
/// the device's bios that were submitted by a thread of this name, or by any thread. `None` if `bpftrace` is
/// missing or does not work.
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
        "tracepoint:block:block_bio_queue /{filter} && args->nr_sector > 0 && args->rwbs != \"R\"/ \
         {{ @bios[args->nr_sector] = count(); }}"
    );
    let words = words.join(" ");
    let mut bpftrace = tool("unshare");
    bpftrace
        .args([
            "-m",
            "sh",
            "-c",
            &with_tracefs("exec bpftrace -e \"$1\" -c \"$2\""),
            "sh",
        ])
        .args([&program, &words])
        .stdin(Stdio::null());
    let output = bpftrace.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() || !text.contains("Attaching") {
        throughline_testkit::left_out!(
            "no bpftrace that works: {text}{}",
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

/// Whether to skip: these tests depend on an external program, so they run only with `THROUGHLINE_SOAK`.
fn no_judge() -> bool {
    if !throughline_testkit::tier::soak() {
        throughline_testkit::left_out!("comparing accounts with bpftrace needs THROUGHLINE_SOAK=1");
        return true;
    }
    !throughline_testkit::program::has(&["bpftrace"]) || kernel_is_out_of_reach()
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

/// Keeps only bios of the command. A mounted file system may write journal and metadata while only one of the
/// two is tracing; those bios are smaller.
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
    let out = ext3.image.sibling("account.json");
    let mut words = explained_to(&out, &["--kernel", "--"]);
    words.extend(report_1(&ext3.file()));
    let Some((printed, bios)) = bpftraced(&words, ext3.number(), Some("dd")) else {
        return;
    };
    let account = account_in(&out);
    eprintln!("ext3 on loop, report 1, by the kernel; bpftrace (bytes, bios): {bios:?}");
    let all: u64 = bios.iter().map(|(_, count)| count).sum();
    assert_eq!(
        account["submitted_by"]["the command"], all,
        "{account}\n{printed}"
    );
    assert_eq!(
        large(sizes(&account, "write")),
        large(bios),
        "{account}\n{printed}"
    );
}

#[test]
fn bpftrace_counts_the_same_bios_of_our_engine() {
    if no_judge() {
        return;
    }
    let Some(ext3) = Loop::new(false) else { return };
    let out = ext3.image.sibling("account.json");
    let source = ext3.image.sibling("a.bin");
    fs::write(&source, noise((4 << 20) + (48 << 10), 5)).unwrap();
    let target = format!("{}:/b", ext3.device.node());
    // A size that fits into one bio even if the buffer consists of small pages.
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
    let Some((printed, bios)) = bpftraced(&words, ext3.number(), None) else {
        return;
    };
    let account = account_in(&out);
    eprintln!("our engine, cp; bpftrace (bytes, bios): {bios:?}");
    assert_eq!(sizes(&account, "write"), bios, "{account}\n{printed}");
}
