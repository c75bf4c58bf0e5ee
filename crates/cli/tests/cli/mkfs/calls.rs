//! The calls of scripts: under the names of mke2fs, each ends as mke2fs does, and makes the same volume.
//!
//! `beside_mke2fs` compares all bytes of a volume, but makes each in a new file, and no call in it fails.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use throughline_testkit::{e2fs, program};

use super::{Names, TIME, UUID};

const CALLS: &str = include_str!("calls.txt");
/// Where `-E offset=` puts the volume in some of the calls.
const OFFSET: &str = "offset=1048576";

/// What `dumpe2fs` shows of the outcome: without what is random, and checksums, which cover that.
fn shown(image: &Path) -> Vec<String> {
    const RANDOM: [&str; 6] = [
        "Filesystem UUID:",
        "Directory Hash Seed:",
        "Lifetime writes:",
        "Checksum:",
        "Journal checksum:",
        "    mmp_",
    ];
    let dumped = program::run(e2fs::tool("dumpe2fs").arg(image), e2fs::LIMIT);
    let lines = dumped.stdout.lines();
    let lines = lines.filter(|line| !RANDOM.iter().any(|start| line.starts_with(start)));
    let words = |line: &str| {
        let words = line.split(' ');
        let words: Vec<&str> = words.filter(|word| !word.contains("0x")).collect();
        words.join(" ")
    };
    lines.map(words).collect()
}

/// Runs a call in a new directory. Its exit status, and what `dumpe2fs` shows.
fn outcome(size: &str, words: &[&str], dir: &Path, program: Command) -> (i32, Vec<String>) {
    let [image, journal, tree] = ["image", "journal", "tree"].map(|name| dir.join(name));
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::write(tree.join("file"), "text\n").unwrap();
    fs::write(tree.join("sub/large"), vec![b'x'; 300_000]).unwrap();
    std::os::unix::fs::symlink("file", tree.join("link")).unwrap();
    if size != "-" {
        let unit = if size.ends_with('k') { 10 } else { 20 };
        let bytes = size[..size.len() - 1].parse::<u64>().unwrap() << unit;
        File::create(&image).unwrap().set_len(bytes).unwrap();
    }
    if words.contains(&"device=JOURNAL") {
        File::create(&journal).unwrap().set_len(8 << 20).unwrap();
        let mut making = e2fs::tool("mke2fs");
        making.args(["-q", "-F", "-O", "journal_dev", "-b", "4096", "-U", UUID]);
        program::run(making.arg(&journal), e2fs::LIMIT).good("a journal device");
    }
    let mut command = program;
    command
        .current_dir(dir)
        .env("E2FSPROGS_FAKE_TIME", TIME)
        .args(words.iter().map(|word| match *word {
            "IMAGE" => "image",
            "TREE" => "tree",
            "device=JOURNAL" => "device=journal",
            word => word,
        }));
    let code = program::run(&mut command, e2fs::LIMIT).code();
    if words.iter().any(|word| word.contains(OFFSET)) {
        let bytes = fs::read(&image).unwrap();
        fs::write(&image, &bytes[1 << 20..]).unwrap();
    }
    (code, shown(&image))
}

/// Compares one call of ours with the same of mke2fs.
///
/// # Errors
/// The first difference.
fn compare(line: &str, names: &Names) -> Result<(), String> {
    let mut words = line.split_whitespace();
    let (size, name) = (words.next().unwrap(), words.next().unwrap());
    let words: Vec<&str> = words.collect();
    let dir = tempfile::tempdir().unwrap();
    let [ours, theirs] = ["ours", "theirs"].map(|name| dir.path().join(name));
    let (code, lines) = outcome(size, &words, &ours, names.command(name));
    let (their_code, their_lines) = outcome(size, &words, &theirs, e2fs::tool(name));
    if code != their_code {
        return Err(format!("{line}: status {code}, of mke2fs {their_code}"));
    }
    let mut pairs =
        (0..lines.len().max(their_lines.len())).map(|at| (lines.get(at), their_lines.get(at)));
    if let Some((ours, theirs)) = pairs.find(|(ours, theirs)| ours != theirs) {
        return Err(format!(
            "{line}: dumpe2fs shows {ours:?}, of mke2fs {theirs:?}"
        ));
    }
    // Only superblocks, a journal device, nothing, or a volume that needs its journal device.
    let is_other = |word: &&str| ["-S", "journal_dev", "-n", "device=JOURNAL"].contains(word);
    if code == 0 && !words.is_empty() && !words.iter().any(is_other) && words != ["-V"] {
        e2fs::assert_clean_after(&ours.join("image"), line);
    }
    Ok(())
}

#[test]
fn calls_of_scripts_do_the_same() {
    if crate::common::tools_are_missing() {
        return;
    }
    let names = Names::new();
    let lines = CALLS
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    let step = throughline_testkit::tier::pick(4, 1, 1);
    let mut wrong = Vec::new();
    for line in lines.step_by(step) {
        match (line.strip_prefix('!'), line) {
            (None, line) => wrong.extend(compare(line, &names).err()),
            (Some(line), _) if compare(line, &names).is_ok() => {
                wrong.push(format!("{line}: differs no more"));
            }
            (Some(_), _) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
